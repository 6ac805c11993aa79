/* The table of records: one page of rows at a time; every text is set as text. */
const PAGE = 50;
const MOST_CHOICES = 500;

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("aria-") || name === "for" || name === "scope" || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

function labelled(text, control) {
  return element("label", {}, element("span", {}, text), control);
}

/* A choice among names, or a box to type a name into where there are too many for a list. */
function nameFilter(title, names, changed) {
  if (names.length <= MOST_CHOICES) {
    const all = element("option", { value: "" }, "all");
    const options = names.map((name, k) => element("option", { value: String(k) }, name.length > 60 ? name.slice(0, 59) + "…" : name));
    const list = element("select", { name: title, onchange: () => changed(list.value === "" ? null : Number(list.value)) }, all, ...options);
    return { label: labelled(title, list), show: (k) => (list.value = k === null ? "" : String(k)) };
  }
  const box = element("input", { type: "search", name: title, placeholder: "its whole name", autocomplete: "off" });
  box.oninput = () => changed(box.value === "" ? null : names.indexOf(box.value));
  return { label: labelled(title, box), show: (k) => (box.value = k === null ? "" : (names[k] ?? box.value)) };
}

function recordsTable(table, state, actions) {
  const head = element("tr");
  const body = element("tbody");
  const measures = table.head.numbers;
  const columns = [
    { key: "risk", title: table.head.ranked_by ? "rank" : "by loss", number: true },
    { key: "id", title: "id" },
    ...(table.head.contents ? [{ key: "contents", title: table.head.contents.kind.slice(0, -1), fixed: true }] : []),
    ...(table.label ? [{ key: "label", title: "class" }] : []),
    ...(table.group ? [{ key: "group", title: "group" }] : []),
    ...measures.map((name) => ({ key: name, title: name, number: true })),
  ];
  const headers = columns.map((column) => {
    if (column.fixed) {
      const title = element("th", { scope: "col" }, column.title);
      head.append(title);
      return title;
    }
    const button = element("button", { type: "button", class: "sort", onclick: () => actions.sortBy(column.key) }, column.title);
    const cell = element("th", { scope: "col", class: column.number ? "num" : "" }, button);
    if (column.key === table.head.ranked_by) cell.classList.add("ranking");
    head.append(cell);
    return cell;
  });
  const caption = element("caption", { id: "explorer-caption" });
  const grid = element("table", { class: "explorer-table" }, caption, element("thead", {}, head), body);
  const scroller = element("div", { class: "scroll", role: "region", tabIndex: 0, "aria-labelledby": "explorer-caption" }, grid);

  function rowOf(i) {
    const pick = element("button", { type: "button", class: "id", title: table.ids[i].slice(0, 500), "aria-pressed": String(state.pinned === i) });
    pick.append(table.head.cut && table.ids[i].length === table.head.cut ? table.ids[i] + "…" : table.ids[i]);
    pick.onclick = () => actions.pin(state.pinned === i ? null : i);
    const name = (kind) => element("td", {}, element("bdi", { class: "id" }, table.head[`${kind}s`][table[kind][i]]));
    const cells = columns.map(({ key }) => {
      if (key === "risk") return element("td", { class: "num" }, whole.format(table.rank[i]));
      if (key === "id") return element("th", { scope: "row" }, element("bdi", {}, pick));
      if (key === "contents") return contentsCell(table, i);
      if (key === "label" || key === "group") return name(key);
      return element("td", { class: key === table.head.ranked_by ? "num ranking" : "num" }, cellText(table, key, table.numbers.get(key)[i]));
    });
    return element("tr", { class: state.pinned === i ? "pinned" : "" }, ...cells);
  }

  const buttons = {};
  const place = element("span", { class: "place" });
  const turn = (name, text, to) => (buttons[name] = element("button", { type: "button", onclick: () => actions.turn(to()) }, text));
  const last = () => Math.max(0, Math.ceil(state.rows.length / PAGE) - 1);
  const pager = element(
    "nav",
    { class: "pager", "aria-label": "Pages of the record table" },
    turn("first", "« first", () => 0),
    turn("previous", "‹ previous", () => state.page - 1),
    place,
    turn("next", "next ›", () => state.page + 1),
    turn("last", "last »", last),
  );

  function draw() {
    const start = state.page * PAGE;
    const shownRows = state.rows.subarray(start, start + PAGE);
    body.replaceChildren(...Array.from(shownRows, rowOf));
    columns.forEach(({ key, fixed }, k) => {
      if (fixed) return;
      const sorted = state.sort.by === key;
      // Down means riskiest first; for the rank that is the smallest number first.
      const falling = key === "risk" && table.head.ranked_by ? !state.sort.down : state.sort.down;
      headers[k].setAttribute("aria-sort", sorted ? (falling ? "descending" : "ascending") : "none");
    });
    const rows = `${whole.format(state.rows.length)} of ${whole.format(table.n)} records`;
    caption.textContent = state.rows.length === table.n ? `All ${whole.format(table.n)} records` : rows;
    const ends = `${whole.format(start + 1)}–${whole.format(start + shownRows.length)} of ${whole.format(state.rows.length)}`;
    place.textContent = state.rows.length ? ends : "no record";
    buttons.first.disabled = buttons.previous.disabled = state.page === 0;
    buttons.next.disabled = buttons.last.disabled = state.page >= last();
  }
  return { nodes: [scroller, pager], draw };
}
