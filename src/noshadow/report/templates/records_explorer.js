/* Table, filters and map share one state: whatever changes it, both are drawn again. */
function explorer(table, home) {
  const numbers = table.head.numbers;
  const second = ["leverage", "margin_leverage", table.head.ranked_by, ...numbers].find((name) => name && name !== "loss" && table.numbers.has(name));
  const state = {
    filters: { label: null, group: null, finding: null, query: "", selection: null },
    sort: { by: "risk", down: true },
    page: 0,
    pinned: null,
    rows: counted(table.n),
    x: numbers.includes("loss") ? "loss" : numbers[0],
    y: second || numbers[0],
  };
  const status = element("p", { class: "status", role: "status" });
  const shows = {};

  function refresh(measure) {
    const started = performance.now();
    state.rows = visibleRows(table, state.filters, state.sort);
    const last = Math.max(0, Math.ceil(state.rows.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    draw();
    performance.measure(measure, { start: started, end: performance.now() });
  }
  function draw() {
    grid.draw();
    if (map) map.draw();
    const many = state.rows.length === table.n ? "All" : whole.format(state.rows.length) + " of";
    const chosen = state.filters.selection ? " chosen in the map" : "";
    status.textContent = `${many} ${whole.format(table.n)} records${chosen}.`;
    clear.disabled = state.rows.length === table.n && state.pinned === null;
  }
  const filter = (name, value) => {
    state.filters[name] = value;
    state.page = 0;
    if (shows[name]) shows[name](value);
    refresh("filter");
  };
  const actions = {
    sortBy(key) {
      const again = state.sort.by === key;
      state.sort = { by: key, down: again ? !state.sort.down : !["id", "label", "group"].includes(key) };
      state.page = 0;
      refresh("sort");
    },
    turn(page) {
      state.page = Math.max(0, page);
      grid.draw();
    },
    pin(row) {
      state.pinned = row;
      const place = row === null ? -1 : state.rows.indexOf(row);
      if (place >= 0) state.page = Math.floor(place / PAGE);
      draw();
    },
    select(chosen, pinned = null) {
      state.pinned = pinned;
      filter("selection", chosen);
    },
  };

  const search = element("input", { type: "search", id: "search", autocomplete: "off", spellcheck: false });
  search.oninput = () => filter("query", search.value);
  shows.query = (text) => search.value !== text && (search.value = text);
  const controls = element("div", { class: "controls" }, labelled("search by id", search));
  const choice = (kind, title, names) => {
    const made = nameFilter(title, names, (k) => filter(kind, k));
    shows[kind] = made.show;
    controls.append(made.label);
  };
  if (table.label) choice("label", "class", table.head.labels);
  if (table.group) choice("group", "group", table.head.groups);
  if (table.head.findings.length) {
    const words = table.head.findings.map((found) => `${found.code} (${whole.format(found.records)})`);
    choice("finding", "finding", words);
  }
  const clear = element("button", { type: "button", class: "clear" }, "clear filters and selection");
  clear.onclick = () => {
    Object.assign(state.filters, { label: null, group: null, finding: null, query: "", selection: null });
    for (const [name, show] of Object.entries(shows)) show(state.filters[name]);
    state.pinned = null;
    state.page = 0;
    refresh("filter");
  };
  controls.append(clear);

  const grid = recordsTable(table, state, actions);
  const map = numbers.length > 1 ? recordsMap(table, state, actions) : null;
  home.replaceChildren(controls, status);
  if (map) {
    const axis = (name, title) => {
      const list = element("select", { name: `axis-${name}` }, ...numbers.map((n) => element("option", { value: n, selected: n === state[name] }, n)));
      list.onchange = () => {
        state[name] = list.value;
        map.draw();
      };
      return labelled(title, list);
    };
    const hint = "Click a point, or draw a loop around several, to see them in the table; filters of the table colour the map.";
    home.append(element("div", { class: "controls" }, axis("x", "to the right"), axis("y", "upwards")), map.canvas, element("p", { class: "fine hint" }, hint));
    window.addEventListener("resize", () => requestAnimationFrame(() => map.draw()));
    document.addEventListener("theme", () => map.draw());
    window.addEventListener("beforeprint", () => map.draw(PRINTED));
    window.addEventListener("afterprint", () => map.draw());
  }
  home.append(...grid.nodes);
  draw();
  return { state, filter, actions };
}

/* Names elsewhere on the page become buttons that filter the records. */
function linkPicks(table, made, home) {
  const placed = { label: table.head.labels || [], group: table.head.groups || [], finding: table.head.findings.map((found) => found.code) };
  for (const pick of document.querySelectorAll("[data-pick]")) {
    const k = placed[pick.dataset.pick].indexOf(pick.dataset.name);
    if (k < 0) continue;
    const button = element("button", { type: "button", class: "pick", title: "show these records" }, ...pick.childNodes);
    button.onclick = () => {
      made.filter(pick.dataset.pick, k);
      home.scrollIntoView();
    };
    pick.replaceChildren(button);
  }
  for (const link of document.querySelectorAll('a[href^="#rank-"]')) {
    link.onclick = (event) => {
      event.preventDefault();
      made.actions.pin(Number(link.hash.slice(6)) - 1);
      home.scrollIntoView();
    };
  }
}

async function start() {
  const home = document.getElementById("explorer");
  const text = document.getElementById("record-data");
  if (!home || !text) return;
  try {
    const table = await recordTable(text.textContent);
    text.remove();
    document.documentElement.classList.add("explored");
    linkPicks(table, explorer(table, home), home);
    performance.measure("ready", { start: 0, end: performance.now() });
  } catch (error) {
    document.documentElement.classList.remove("explored");
    home.replaceChildren(element("p", { class: "caution" }, `The records cannot be explored in this browser (${error.message}). It needs DecompressionStream.`));
  }
}
start();
