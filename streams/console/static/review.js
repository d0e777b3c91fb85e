// Move and select rows by keys. Without this script the boxes and buttons do the same.
"use strict";

const boxes = [...document.querySelectorAll("input[name=id]")];
const press = (value) => document.querySelector(`button[value=${value}]`)?.click();
const move = (step) => boxes[Math.min(boxes.length - 1, Math.max(0, boxes.indexOf(document.activeElement) + step))]?.focus();

const keys = {
  j: () => move(1),
  k: () => move(-1),
  x: () => document.activeElement.name === "id" && document.activeElement.click(),
  a: () => press("approve"),
  r: () => press("reject"),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) keys[event.key]?.();
});
