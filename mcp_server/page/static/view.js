// The view in MCP clients: shows the HTML of a result, and tells the server what the user decides about a change.
"use strict";
(() => {
  const main = document.querySelector("main");
  const answers = new Map();
  const dark = [...document.styleSheets[0].cssRules].find((rule) => rule.media?.mediaText.includes("dark")).media;
  let last = 0;
  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const ask = (method, params) =>
    new Promise((resolve, reject) => {
      answers.set(++last, { resolve, reject });
      send({ id: last, method, params });
    });
  const words = (result) =>
    (result.content || []).filter((one) => one.type === "text").map((one) => one.text).join("\n");
  function said(kind, text) {
    const shown = document.createElement(kind === "stored" ? "pre" : "p");
    shown.className = kind;
    shown.textContent = text;
    return shown;
  }
  function show(result) {
    const html = (result._meta || {})["context-manager/html"];
    if (html) main.innerHTML = html;
    else main.replaceChildren(said("stored", words(result)));
  }
  function use(context) {
    if (!context || !context.theme) return;
    document.documentElement.style.colorScheme = context.theme;
    dark.mediaText = context.theme === "dark" ? "all" : "not all";
  }
  async function decide(button) {
    const card = button.closest("section");
    const { change, key, approve } = button.dataset;
    for (const one of card.querySelectorAll("button")) one.disabled = true;
    let told, failed, html;
    try {
      const result = await ask("tools/call", {
        name: "decide_change",
        arguments: { change, key, approve: approve === "yes" },
      });
      [told, failed, html] = [words(result), result.isError, (result._meta || {})["context-manager/html"]];
    } catch (error) {
      [told, failed] = [error.message, true];
    }
    const notice = said(failed ? "notice bad" : "notice", told);
    if (html === undefined) {
      card.replaceChildren(notice);
    } else {
      main.innerHTML = html; // the other changes, whose diffs and keys may differ now
      main.prepend(notice);
    }
    if (!failed) ask("ui/update-model-context", { content: [{ type: "text", text: told }] }).catch(() => {});
  }
  const notified = {
    "ui/notifications/tool-result": show,
    "ui/notifications/tool-cancelled": () => main.replaceChildren(said("muted", "This call was cancelled.")),
    "ui/notifications/host-context-changed": use,
  };
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || !data || data.jsonrpc !== "2.0") return;
    if (data.method && data.id !== undefined) {
      const known = data.method === "ui/resource-teardown" || data.method === "ping";
      send(known ? { id: data.id, result: {} } : { id: data.id, error: { code: -32601, message: "unknown method" } });
    } else if (data.method) notified[data.method]?.(data.params || {});
    else if (answers.has(data.id)) {
      const { resolve, reject } = answers.get(data.id);
      answers.delete(data.id);
      if (data.error) reject(new Error(data.error.message));
      else resolve(data.result || {});
    }
  });
  main.addEventListener("click", ({ target }) => {
    const button = target.closest("button[data-change]");
    if (button) decide(button);
  });
  new ResizeObserver(() => {
    const { width, height } = document.documentElement.getBoundingClientRect();
    send({ method: "ui/notifications/size-changed", params: { width: Math.ceil(width), height: Math.ceil(height) } });
  }).observe(document.documentElement);
  const me = { name: "context-manager", version: "1" };
  ask("ui/initialize", { protocolVersion: "2026-01-26", appInfo: me, appCapabilities: {} }).then((host) => {
    use(host.hostContext);
    send({ method: "ui/notifications/initialized", params: {} });
  });
})();
