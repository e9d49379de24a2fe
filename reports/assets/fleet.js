// Tables sort by a click on a heading: numbers by their value, largest first; again turns the order round.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.classList.contains("wide")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("n");
      const now = head.getAttribute("aria-sort");
      const order = now === "descending" ? "ascending" : now === "ascending" ? "descending" : numeric ? "descending" : "ascending";
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => {
        const cell = row.cells[column];
        const told = cell.dataset.v ?? cell.textContent.trim();
        return numeric ? (told === "" ? NaN : Number(told)) : told;
      };
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        if (!numeric) return sign * x.localeCompare(y, "en", { numeric: true });
        // What is unknown stays at the end.
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return sign * (x - y);
      });
      table.tBodies[0].append(...rows);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
    });
  });
}
