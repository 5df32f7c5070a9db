"use strict";
// Without this script the tables can be read as they are; with it they sort and filter.
for (const block of document.querySelectorAll("[data-table]")) {
  const table = block.querySelector("table");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  if (rows.length < 2) continue;

  const shown = (cell) => cell.textContent.trim();
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = shown(cell);
    return text === "-" ? null : text;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      // Rows without a value stay last, whichever way the others go.
      const keyed = rows.map((row) => [key(row, column), row]);
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return down ? compare(b, a) : compare(a, b);
      });
      body.append(...keyed.map(([, row]) => row));
    });
  });

  const tools = document.createElement("div");
  tools.className = "tools";
  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(text, control);
    tools.append(label);
    return control;
  };
  const search = labelled("Filter rows by words", document.createElement("input"));
  search.type = "search";
  search.autocomplete = "off";
  const picks = [];
  heads.forEach((head, column) => {
    const values = new Set(rows.map((row) => shown(row.cells[column])));
    const long = Math.max(...Array.from(values, (value) => value.length)) > 28;
    if (head.dataset.pick === undefined || long || values.size < 2 || values.size > 12 || values.size === rows.length) return;
    const select = labelled(head.textContent.trim(), document.createElement("select"));
    select.append(new Option("all", ""), ...Array.from(values, (value) => new Option(value, value)));
    picks.push([column, select]);
  });
  const count = document.createElement("output");
  count.setAttribute("aria-live", "polite");
  tools.append(count);
  block.querySelector(".scroll").before(tools);

  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let visible = 0;
    for (const row of rows) {
      const fits = words.every((word) => texts.get(row).includes(word)) &&
        picks.every(([column, select]) => select.value === "" || shown(row.cells[column]) === select.value);
      row.hidden = !fits;
      visible += fits;
    }
    count.textContent = visible === rows.length ? `${rows.length} rows` : `${visible} of ${rows.length} rows`;
  };
  search.addEventListener("input", filter);
  picks.forEach(([, select]) => select.addEventListener("change", filter));
  filter();
}
