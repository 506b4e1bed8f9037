"use strict";

function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent.trim();
      const rows = [...body.rows].sort((a, b) => text(a).localeCompare(text(b), "en", { numeric: true }));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}

function filterable(table) {
  const tools = document.createElement("div");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  const open = document.createElement("button");
  const targets = [...table.querySelectorAll("tbody a")].map((link) => document.getElementById(link.hash.slice(1)));
  const sections = targets.map((target) => target.closest("details"));
  tools.className = "tools";
  label.textContent = "Filter: ";
  input.type = "search";
  open.type = "button";
  open.textContent = "Open all that are shown";
  label.append(input);
  tools.append(label, count);
  if (sections.length) tools.append(open);
  table.parentElement.before(tools);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    const shown = new Set();
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown.add(row.cells[0].textContent.trim());
    }
    for (const section of sections) section.hidden = !shown.has(section.dataset.name);
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
  open.addEventListener("click", () => {
    for (const section of sections) section.open = !section.hidden;
  });
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const section = target && target.closest("details");
  if (section) {
    section.open = true;
    target.scrollIntoView();
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("table.filtered").forEach(filterable);
addEventListener("hashchange", openTarget);
openTarget();
