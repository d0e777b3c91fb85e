/** Longer texts are cut: the relay keeps 8 KiB of a value. */
const MOST_CHARACTERS = 65_536;
/** A longer value becomes a text: the relay takes no request of more than 4 MiB, and a character has up to three bytes. */
const MOST_OF_VALUE = 400_000;

/** Copy a value in JSON's types: one that cannot be sent would hold up all later events. Circles are cut. */
export function plain(value: unknown): unknown {
  const seen = new WeakSet<object>();
  const asText = (_: string, each: unknown): unknown => {
    const text = typeof each === "bigint" ? String(each) : each;
    return typeof text === "string" ? cut(text, MOST_CHARACTERS) : text;
  };
  const once = (name: string, each: unknown): unknown => {
    if (typeof each !== "object" || each === null) return asText(name, each);
    if (seen.has(each)) return "[seen]";
    seen.add(each);
    return each;
  };
  for (const known of [asText, once]) {
    try {
      const json = JSON.stringify(value, known) ?? "null";
      return json.length > MOST_OF_VALUE ? cut(json, MOST_CHARACTERS) : JSON.parse(json);
    } catch {} // a circle, or a getter or `toJSON` that throws
  }
  return "[unreadable]";
}

export function plainFields(data: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(data).map(([name, value]) => [name, plain(value)]));
}

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(plain(value));
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}… [${text.length - most} characters cut]` : text;
}
