/** Longer texts are cut: the relay keeps 8 KiB of a value, and takes no request of more than 4 MiB. */
const MOST_CHARACTERS = 65_536;

/** A copy in JSON's types: a value that cannot be sent would hold up all later events. What holds itself is cut. */
export function plain(value: unknown): unknown {
  const seen = new WeakSet<object>();
  const asText = (_: string, each: unknown): unknown => {
    const text = typeof each === "bigint" ? String(each) : each;
    if (typeof text !== "string" || text.length <= MOST_CHARACTERS) return text;
    return `${text.slice(0, MOST_CHARACTERS)}… [${text.length - MOST_CHARACTERS} characters cut]`;
  };
  const once = (name: string, each: unknown): unknown => {
    if (typeof each !== "object" || each === null) return asText(name, each);
    if (seen.has(each)) return "[seen]";
    seen.add(each);
    return each;
  };
  for (const known of [asText, once]) {
    try {
      return JSON.parse(JSON.stringify(value, known) ?? "null");
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
