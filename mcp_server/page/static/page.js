// Keys: 1 to 6 open the screens, / goes to the search box, j and k move in a list, ? shows the keys.
"use strict";
(() => {
  const typing = (at) => at.closest("input, textarea, select, [contenteditable]") !== null;
  const rows = () => [...document.querySelectorAll("[data-row]")];
  function move(step) {
    const all = rows();
    const at = all.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    if (next) next.focus();
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const screens = document.querySelectorAll("nav.nav a");
    const number = Number(event.key);
    if (number >= 1 && number <= screens.length) screens[number - 1].click();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "/") {
      const box = document.querySelector("input[type=search]");
      if (box) box.focus();
      else location.href = "/find";
    } else return;
    event.preventDefault();
  });
})();
