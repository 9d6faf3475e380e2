// Exchanges the one-time code of the address for a cookie. The code is in the fragment, which is never sent.
"use strict";
(() => {
  const told = document.getElementById("told");
  async function enter(code) {
    history.replaceState(null, "", location.pathname + location.search);
    told.textContent = "Opening …";
    const answer = await fetch("/open", { method: "POST", body: code, headers: { "Content-Type": "text/plain" } });
    if (answer.ok) {
      const to = new URLSearchParams(location.search).get("to") || "/now";
      location.replace(/^\/(?![/\\])/.test(to) ? to : "/now");
    } else {
      told.textContent = (await answer.text()) + " Run `context-manager page` again.";
    }
  }
  const open = () => { if (location.hash.length > 1) enter(location.hash.slice(1)); };
  addEventListener("hashchange", open); // an address pasted into an open tab changes only the fragment
  const form = document.querySelector("form");
  if (form) form.addEventListener("submit", (event) => { event.preventDefault(); enter(form.elements.token.value.trim()); });
  open();
})();
