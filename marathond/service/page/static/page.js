// Keeps a page that is complete without it up to date: asks for the parts that changed, and puts them in node by node, so that
// focus, scroll positions, selections and what was opened stay.
"use strict";
(() => {
  const root = document.documentElement, contact = document.getElementById("contact"), say = document.getElementById("say");
  const HIDDEN_S = 30, FAIL_MAX_S = 15, TIMEOUT_MS = 25000;
  let version = root.dataset.version, at = root.dataset.at, wait = 2, failed = 0, timer = 0, busy = false;
  // What the reader's side settles, not the server: left alone by an update.
  const OURS = new Set(["tabindex", "open"]);

  const key = (node) => node.nodeType === 1 && (node.id || node.dataset.k) || "";

  function same(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  }

  function morph(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !OURS.has(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (!OURS.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    children(old, fresh);
  }

  // Rows go by their key.  What is no longer wanted is taken out rather than what stays moved: a node that moves loses the focus.
  function children(old, fresh) {
    const wishes = [...fresh.childNodes], kept = new Set(wishes.map(key).filter(Boolean)), named = new Map();
    for (const child of old.childNodes) if (key(child)) named.set(key(child), child);
    let here = old.firstChild;
    const drop = () => { const next = here.nextSibling; here.remove(); here = next; };
    for (const wanted of wishes) {
      while (here && ((key(here) && !kept.has(key(here))) || (here.nodeType !== 1 && wanted.nodeType === 1))) drop();
      const known = key(wanted) && named.get(key(wanted));
      if (known && same(known, wanted)) {
        if (known !== here) old.insertBefore(known, here); else here = here.nextSibling;
        morph(known, wanted);
      } else if (here && same(here, wanted)) {
        const there = here;
        here = here.nextSibling;
        morph(there, wanted);
      } else {
        old.insertBefore(wanted, here);
      }
    }
    while (here) drop();
  }

  function tell(words) { if (say.textContent !== words) say.textContent = words; }

  function put(parts) {
    const head = document.querySelector("#head h1"), was = head && head.dataset.health;
    for (const [name, html] of Object.entries(parts)) {
      const place = document.getElementById(name);
      if (!place) return location.reload();  // another kind of screen by now
      const box = new DOMParser().parseFromString(html, "text/html").body;
      children(place, box);
    }
    const now = document.querySelector("#head h1");
    if (now && now.dataset.health !== was) tell(now.textContent.replace(/\s+/g, " ").trim());
    rove();
  }

  function lost() {
    failed += 1;
    const words = "no contact since " + at;
    if (contact.hidden || contact.textContent !== words) { contact.textContent = words; contact.hidden = false; tell(words); }
  }

  function found() {
    failed = 0;
    if (!contact.hidden) { contact.hidden = true; tell("contact again"); }
  }

  async function look() {
    if (busy) return;
    busy = true;
    clearTimeout(timer);
    const stop = new AbortController(), alarm = setTimeout(() => stop.abort(), TIMEOUT_MS);
    try {
      const answer = await fetch(root.dataset.parts, { headers: { "If-None-Match": `"${version}"` }, signal: stop.signal, cache: "no-store" });
      if (answer.status !== 304 && !answer.ok) throw new Error(String(answer.status));
      const body = answer.status === 304 ? null : await answer.json();
      at = answer.headers.get("X-As-Of") || at;
      wait = Number(answer.headers.get("X-Again")) || wait;
      document.getElementById("at").textContent = at;
      if (body) { put(body.parts); document.title = body.title; version = body.version; }
      found();
    } catch (error) {
      lost();
    } finally {
      clearTimeout(alarm);
      busy = false;
      const pause = failed ? Math.min(FAIL_MAX_S, wait * failed) : document.hidden ? HIDDEN_S : wait;
      timer = setTimeout(look, pause * 1000);
    }
  }

  // The grid is one stop of the tab key; within it the arrow keys, Home and End.
  function rove() {
    const links = [...document.querySelectorAll("#cells a")];
    if (!links.length) return;
    const chosen = links.includes(document.activeElement) ? document.activeElement : links.find((link) => link.tabIndex === 0 && link.hasAttribute("tabindex")) || links[0];
    for (const link of links) link.tabIndex = link === chosen ? 0 : -1;
  }

  function step(event) {
    const from = event.target.closest && event.target.closest("#cells a");
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    const table = from.closest("table"), cell = from.closest("td"), row = cell.parentElement;
    const inRow = [...row.querySelectorAll("a")], place = inRow.indexOf(from), column = cell.cellIndex;
    const within = [...cell.querySelectorAll("a")].indexOf(from);
    let to = null;
    if (event.key === "ArrowRight") to = inRow[place + 1];
    else if (event.key === "ArrowLeft") to = inRow[place - 1];
    else if (event.key === "Home") to = inRow[0];
    else if (event.key === "End") to = inRow[inRow.length - 1];
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const rows = [...table.tBodies[0].rows], by = event.key === "ArrowDown" ? 1 : -1;
      for (let at = rows.indexOf(row) + by; at >= 0 && at < rows.length && !to; at += by) {
        const there = [...rows[at].cells[column].querySelectorAll("a")];
        to = there[Math.min(within, there.length - 1)];
      }
    } else return;
    event.preventDefault();
    if (!to) return;
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  document.addEventListener("keydown", step);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  window.addEventListener("pagehide", () => clearTimeout(timer));
  rove();
  if (root.dataset.parts) timer = setTimeout(look, wait * 1000);
})();
