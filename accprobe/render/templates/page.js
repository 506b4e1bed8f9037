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
  tools.className = "tools";
  label.textContent = "Filter: ";
  input.type = "search";
  label.append(input);
  tools.append(label, count);
  table.parentElement.before(tools);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
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
