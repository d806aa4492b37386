(() => {
  "use strict";

  // Light or dark: what the system says until the reader chooses. Nothing is stored.
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => {
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  toggle.hidden = false;
  name();

  // Folded parts that belong on paper.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details[data-print]:not([open])")];
    opened.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((details) => (details.open = false)));

  const table = document.getElementById("anomalies");
  if (!table) return;

  // A node is a body of two rows; both move together.
  const bodies = () => [...table.tBodies];
  const collator = new Intl.Collator("en", { numeric: true });
  const value = (body, column) => body.rows[0].cells[column].dataset.value;
  const compare = (kind, a, b) => (kind === "number" ? Number(a) - Number(b) : collator.compare(a, b));
  const sort = (column, header, descending) => {
    const sign = descending ? -1 : 1;
    const sorted = bodies().sort((first, second) => {
      const [a, b] = [value(first, column), value(second, column)];
      // What has no value comes last, whichever way the rest runs.
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return sign * compare(header.dataset.sort, a, b);
    });
    table.append(...sorted);
    headers.forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  };
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const now = header.getAttribute("aria-sort");
      // Scores are looked at from the top, texts and ranks from the start.
      const first = header.dataset.sort === "number" && column > 0;
      sort(column, header, now ? now === "ascending" : first);
    });
  });

  const controls = document.querySelector("[data-controls=anomalies]");
  const count = controls.querySelector("output");
  const filters = [...controls.querySelectorAll("[data-filter]")];
  const filter = () => {
    let shown = 0;
    for (const body of bodies()) {
      body.hidden = !filters.every(({ dataset, value }) =>
        dataset.filter === "text"
          ? body.dataset.text.toLowerCase().includes(value.trim().toLowerCase())
          : !value || body.dataset[dataset.filter] === value,
      );
      shown += body.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${table.tBodies.length} shown`;
  };
  filters.forEach((control) => control.addEventListener("input", filter));
  controls.hidden = false;
  // A browser may restore what was chosen before a reload.
  filter();
})();
