// Replace the blocks that have changed. Without this script the page shows what was true when it was loaded.
"use strict";

const source = new EventSource("/live");

source.onmessage = (event) => {
  for (const [name, html] of Object.entries(JSON.parse(event.data))) {
    const block = document.getElementById(`block-${name}`);
    if (block === null) continue;
    // What the reader stands on keeps its place: the focus is put back on the link that leads to the same page.
    const focused = block.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    block.innerHTML = html;
    showTimes(block);
    if (focused !== null) block.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
};

const connected = (yes) => document.body.classList.toggle("disconnected", !yes);
source.onopen = () => connected(true);
source.onerror = () => connected(false);
