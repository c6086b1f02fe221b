"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const text = document.getElementById("text");
  const area = document.getElementById("area");
  const chips = all(".chip");
  const told = document.getElementById("told");
  const rows = all(".matrix tbody tr");
  const heads = all(".matrix th.rule");
  const areas = all(".matrix .areas th");
  const cards = all("#wrong article");
  const cases = all("details.case");
  const titles = Object.fromEntries(Object.entries(data.cases).map(([name, found]) => [name, found.title]));

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  // Filters: a text names scenarios, contracts or both; what it names of one kind alone leaves the other whole.
  const filter = () => {
    const words = text.value.trim().toLowerCase();
    const wanted = new Set(chips.filter((chip) => chip.ariaPressed === "true").map((chip) => chip.dataset.verdict));
    const names = (string) => string.toLowerCase().includes(words);
    const caseNamed = (name) => names(name) || names(titles[name] ?? "");
    const anyCase = rows.some((row) => caseNamed(row.dataset.case));
    const anyRule = data.contracts.some(names);
    const inArea = (id) => !area.value || id.startsWith(`${area.value}/`);
    const none = words && !anyCase && !anyRule;
    const caseFits = (name) => !none && (!anyCase || !words || caseNamed(name));
    const ruleFits = (id) => !none && inArea(id) && (!anyRule || !words || names(id) || (anyCase && !data.contracts.some((other) => inArea(other) && names(other))));

    const columns = data.contracts.map((id) => ruleFits(id));
    const used = columns.map(() => false);
    const shown = new Set();
    for (const row of rows) {
      const cells = all("td", row);
      const fits = caseFits(row.dataset.case);
      let hit = !wanted.size;
      cells.forEach((cell, number) => {
        const match = !wanted.size || wanted.has(cell.className.replace("faded", "").trim());
        cell.classList.toggle("faded", !match);
        if (fits && columns[number] && match) {
          used[number] = true;
          hit = true;
        }
      });
      row.hidden = !(fits && hit);
      if (!row.hidden) shown.add(row.dataset.case);
    }
    const visible = columns.map((fits, number) => fits && (used[number] || !wanted.size));
    heads.forEach((head, number) => { head.hidden = !visible[number]; });
    for (const row of rows) all("td", row).forEach((cell, number) => { cell.hidden = !visible[number]; });
    for (const head of areas) {
      const count = data.contracts.filter((id, number) => visible[number] && id.startsWith(`${head.dataset.area}/`)).length;
      head.hidden = !count;
      head.colSpan = Math.max(count, 1);
    }
    for (const card of cards) {
      const own = card.dataset.cases.split(" ").filter(Boolean);
      const fits = ruleFits(card.dataset.contract) && (!own.length || own.some(caseFits));
      card.hidden = !fits || (wanted.size > 0 && !card.dataset.verdicts.split(" ").some((verdict) => wanted.has(verdict)));
    }
    for (const found of cases) found.hidden = !shown.has(found.dataset.case);
    const rules = visible.filter(Boolean).length;
    const filtered = words || area.value || wanted.size;
    told.textContent = filtered ? (shown.size && rules ? `${shown.size} cases × ${rules} contracts` : "nothing matches") : "";
  };

  const command = (line) => make("div", { class: "command" }, make("code", {}, line),
    make("button", { type: "button", class: "copy", "aria-label": "Copy the command" }, "copy"));

  const wrongCard = (result) => {
    const card = make("div", { class: `card ${result.verdict}` }, make("h3", {}, make("code", {}, result.contract)));
    if (!result.findings.length || result.verdict !== "violation") card.append(make("p", {}, result.message));
    for (const finding of result.findings) {
      card.append(make("p", { class: "message" }, `${finding.where}: ${finding.message}`));
      if (finding.expected || finding.found) {
        card.append(make("dl", { class: "compare" }, make("dt", {}, "expected"), make("dd", {}, make("code", {}, finding.expected)),
          make("dt", {}, "found"), make("dd", {}, make("code", {}, finding.found))));
      }
    }
    if (result.more) card.append(make("p", {}, `${result.more} more findings`));
    if (result.repro) card.append(command(result.repro));
    return card;
  };

  const piece = ([shown, id, at, trained, marked, logprob], hue) => {
    const names = ["piece", hue >= 0 && "said", trained && "trained", marked && "marked"].filter(Boolean).join(" ");
    const state = [`token ${at}`, `id ${id}`, trained ? "trained" : "not trained"];
    if (logprob !== null) state.push(`logprob ${logprob}`);
    return make("span", { class: names, title: state.join(", "), style: `--hue: ${Math.max(hue, 0)}` }, shown);
  };

  const segment = (part) => make("div", { class: "segment" },
    make("div", { class: "who" }, part.who, make("small", {}, ` ${part.ids} ids${part.missing ? `, ${part.missing} left out` : ""}`)),
    make("div", {}, ...part.tokens.map((token) => piece(token, part.hue))));

  const counters = (found) => {
    const table = make("table", { class: "counters" }, make("tr", {}, ...["counter", "sample", "ledger", ""].map((name) => make("th", { scope: "col" }, name))));
    for (const [name, said, truth, agrees] of found) {
      table.append(make("tr", agrees ? {} : { class: "differs" }, ...[name, said, truth, agrees ? "✓" : "✗"].map((cell) => make("td", {}, cell))));
    }
    return table;
  };

  const sample = (found) => {
    const body = make("div", { class: "columns" }, make("div", {}, ...(found.segments.length ? found.segments.map(segment) : [make("p", {}, "no ids")])));
    if (found.counters.length) body.append(counters(found.counters));
    return [make("h4", {}, found.head), body];
  };

  const draw = (details) => {
    const body = details.querySelector(".body");
    const found = data.cases[details.dataset.case];
    if (!found || body.childElementCount) return;
    body.append(make("p", { class: "facts" }, found.facts));
    body.append(make("div", { class: "cards" }, ...found.wrong.map(wrongCard)), make("pre", { tabindex: "0" }, found.tree.join("\n")));
    for (const rollout of found.rollouts) {
      if (rollout.error) body.append(make("h4", {}, `rollout ${rollout.number} failed: ${rollout.error}`));
      else if (found.rollouts.length > 1) body.append(make("h4", {}, `rollout ${rollout.number}`));
      body.append(...rollout.samples.flatMap(sample));
    }
    if (found.more) body.append(make("p", {}, `${found.more} more rollouts`));
    if (found.batch.length) {
      const table = make("table", { class: "counters" });
      for (const [name, value] of found.batch) table.append(make("tr", {}, make("td", {}, name), make("td", {}, value)));
      body.append(make("h4", {}, "batch"), table);
    }
  };

  const open = (name) => {
    const details = cases.find((found) => found.dataset.case === name);
    if (!details) return;
    details.hidden = false;
    details.open = true;
    draw(details);
    details.scrollIntoView();
  };
  const follow = () => {
    const [kind, ...name] = decodeURIComponent(location.hash.slice(1)).split("/");
    if (kind === "case") open(name.join("/"));
  };

  const say = async (button) => {
    const line = button.previousElementSibling.textContent;
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "selected";
    }
  };

  for (const control of [text, area]) control.addEventListener("input", filter);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.ariaPressed = chip.ariaPressed === "true" ? "false" : "true";
      filter();
    });
  }
  for (const details of cases) details.addEventListener("toggle", () => details.open && draw(details));
  document.querySelector(".matrix tbody").addEventListener("mouseover", ({ target }) => {
    if (target.matches("td") && !target.title) {
      const name = target.parentElement.dataset.case;
      target.title = `${data.contracts[target.cellIndex - 1]} on ${name}: ${target.className.replace("faded", "").trim().replace("_", " ") || "not asked"}`;
    }
  });
  document.addEventListener("click", ({ target }) => {
    if (target.matches(".copy")) say(target);
    if (target.matches('a[href^="#case/"]') && target.getAttribute("href") === location.hash) follow();
  });
  addEventListener("hashchange", follow);
  follow();
})();
