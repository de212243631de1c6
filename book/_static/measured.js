// Tables of records: the reader's own file beside ours, and dots for the samples.
// A file is read here and goes nowhere.
(() => {
  const isText = (value) => typeof value === "string" && value.trim() !== "";
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }

  // What weft.bench.record.read checks, with the same words.
  function problem(record, wanted, format) {
    if (typeof record !== "object" || record === null || record.format !== format)
      return `it is not a record: it has no "format": "${format}"`;
    for (const field of ["name", "title", "topic", "command", "date", "commit"])
      if (!isText(record[field])) return `${field} must be text that is not empty`;
    if (record.name !== wanted)
      return `it is a record of “${record.name}”; here it takes “${wanted}”`;
    if (!isText(record.machine?.chip)) return "machine must name its chip";
    if (typeof record.versions !== "object" || record.versions === null)
      return "it has no versions";
    if (!Array.isArray(record.results) || !record.results.length) return "it has no results";
    for (const [i, result] of record.results.entries()) {
      for (const field of ["name", "who", "unit"])
        if (!isText(result?.[field]))
          return `results[${i}].${field} must be text that is not empty`;
      const { value, samples } = result;
      if (!Array.isArray(samples) || !samples.length || ![value, ...samples].every(isNumber))
        return `results[${i}] needs a value and samples that are numbers`;
      if (Math.abs(value - median(samples)) > 1e-9 * Math.abs(value))
        return `results[${i}].value is not the median of its samples`;
    }
    return null;
  }

  // As weft.plan.units writes numbers: three digits, and a prefix for seconds, bytes and FLOPs.
  const LARGE = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const SMALL = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const RAISED = { "-": "⁻", ..."⁰¹²³⁴⁵⁶⁷⁸⁹" };

  function grouped(value, decimals = 0) {
    const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return value.toLocaleString("en-US", digits);
  }

  function amount(value) {
    const rounded = Number(value.toPrecision(3));
    const size = Math.abs(rounded);
    if (!size || (size >= 1e-4 && size < 1000)) return String(rounded);
    if (size >= 1000 && size < 1e15) return grouped(value);
    const [mantissa, exponent] = value.toExponential(2).split("e");
    const raised = String(Number(exponent)).replace(/./g, (digit) => RAISED[digit]);
    return `${Number(mantissa)} × 10${raised}`;
  }

  function quantity(value, unit) {
    if (unit === "1") return amount(value);
    if (unit === "1/s") return `${amount(value)} per s`;
    const most = Math.abs(value) || (unit === "s" ? 1 : 0);
    const large = /^(B|B\/s|FLOP.*)$/.test(unit) ? LARGE : [[1, ""]];
    const prefixes = unit === "s" ? SMALL : large;
    const [size, prefix] = prefixes.find(([least]) => most >= 0.9995 * least) ?? prefixes.at(-1);
    return `${amount(value / size)} ${prefix}${unit}`;
  }

  function printed(value, unit, spec) {
    const [, comma, decimals] = /^(,?)\.(\d+)f$/.exec(spec) ?? [];
    if (decimals === undefined) return quantity(value, unit);
    const text = comma ? grouped(value, Number(decimals)) : value.toFixed(Number(decimals));
    return unit === "1" ? text : `${text} ${unit}`;
  }

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // --- dots: as the build draws them, again where a new column changes the scale ---------------
  function track(cell, largest) {
    const place = (value) => `${largest > 0 ? (100 * Math.max(0, value)) / largest : 0}%`;
    const made = element("span", { className: "track" });
    made.setAttribute("aria-hidden", "true");
    for (const value of JSON.parse(cell.dataset.samples)) {
      const dot = element("i");
      dot.style.left = place(value);
      made.append(dot);
    }
    const bar = element("b");
    bar.style.left = place(Number(cell.dataset.value));
    made.append(bar);
    return made;
  }

  function drawDots(table) {
    if (!table?.classList.contains("measured-plot")) return;
    const cells = [...table.querySelectorAll("td[data-samples]")];
    const largest = {};
    for (const { dataset } of cells)
      largest[dataset.unit] = Math.max(largest[dataset.unit] ?? 0, ...JSON.parse(dataset.samples));
    for (const cell of cells) {
      cell.querySelector(".track")?.remove();
      cell.querySelector(".value").before(track(cell, largest[cell.dataset.unit]));
    }
  }

  // --- the reader's columns ---------------------------------------------------------------------
  function ourTable(box) {
    const old = box.querySelector("table");
    if (old) return old;
    const table = element("table", { className: "measured-table" });
    table.dataset.spec = "";
    table.append(element("thead", {}, element("tr", {}, element("td"))), element("tbody"));
    const looks = { className: "measured-scroll measured-mine", tabIndex: 0 };
    box.prepend(element("div", looks, table));
    return table;
  }

  function cellFor(record, name, who, spec) {
    const found = record.results.find((result) => result.name === name && result.who === who);
    if (!found) return element("td", { className: "none measured-mine" }, "–");
    const value = element("span", { className: "value" }, printed(found.value, found.unit, spec));
    const cell = element("td", { className: "measured-mine" }, series(record, who), value);
    cell.dataset.value = found.value;
    cell.dataset.samples = JSON.stringify(found.samples);
    cell.dataset.unit = found.unit;
    return cell;
  }

  function series(record, who) {
    const chip = element("span", { className: "chip" }, `yours, ${record.machine.chip}`);
    const parts = who.split(".");
    const breakable = parts.flatMap((part, i) => (i ? [".", element("wbr"), part] : [part]));
    return element("span", { className: "series" }, ...breakable, " ", chip);
  }

  function addColumns(box, record) {
    const table = ourTable(box);
    const body = table.querySelector("tbody");
    if (!body.rows.length)
      for (const name of new Set(record.results.map((result) => result.name))) {
        const head = element("th", { scope: "row" }, name);
        const row = element("tr", { className: "measured-mine" }, head);
        row.dataset.result = name;
        body.append(row);
      }
    table.closest("details")?.setAttribute("open", "");
    let shown = 0;
    for (const who of new Set(record.results.map((result) => result.who))) {
      const head = element("th", { scope: "col", className: "measured-mine" });
      head.append(...series(record, who).childNodes);
      const cells = [...body.rows].map((row) =>
        cellFor(record, row.dataset.result, who, table.dataset.spec),
      );
      if (cells.every((cell) => cell.classList.contains("none"))) continue;
      table.tHead.rows[0].append(head);
      [...body.rows].forEach((row, i) => row.append(cells[i]));
      shown += 1;
    }
    drawDots(table);
    return shown;
  }

  function removeOwn(box) {
    box.querySelectorAll(".measured-mine").forEach((part) => part.remove());
    drawDots(box.querySelector("table"));
  }

  function machineLine(record) {
    const { chip, ...machine } = record.machine;
    const spelled = { cpu: "%", gpu: "%", system: "%", cores: "% cores" };
    const pairs = (facts) =>
      Object.entries(facts)
        .map(([key, value]) => (spelled[key] ?? `${key} %`).replace("%", value))
        .join(", ");
    const line = element("p", { className: "measured-machine measured-mine" });
    line.append(element("b", {}, `yours, ${chip}`));
    line.append(` ${pairs(machine)} · ${pairs(record.versions)} · `);
    line.append(`${record.date.slice(0, 10)} · commit ${record.commit} · `);
    line.append(element("code", {}, record.command));
    return line;
  }

  async function take(box, own, file) {
    const status = own.querySelector("[role=status]");
    removeOwn(box);
    let record;
    try {
      record = JSON.parse(await file.text());
    } catch {
      status.textContent = `${file.name} cannot be shown: it is not JSON.`;
      return;
    }
    const wrong = problem(record, own.dataset.record, own.dataset.format);
    if (wrong) {
      status.textContent = `${file.name} cannot be shown: ${wrong}.`;
      return;
    }
    if (!addColumns(box, record)) {
      status.textContent = `${file.name} has none of the results in this table.`;
      return;
    }
    own.before(machineLine(record));
    const remove = element("button", { type: "button", textContent: "Take it away" });
    remove.onclick = () => {
      removeOwn(box);
      status.textContent = "";
    };
    status.replaceChildren(`${file.name} stands in the table. `, remove);
  }

  function setUp(box) {
    const own = box.querySelector(".measured-own");
    const input = own.querySelector("input");
    input.addEventListener("change", () => {
      if (input.files[0]) take(box, own, input.files[0]);
      input.value = "";
    });
    const over = (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      box.classList.add("measured-over");
    };
    box.addEventListener("dragover", over);
    box.addEventListener("dragleave", () => box.classList.remove("measured-over"));
    box.addEventListener("drop", (event) => {
      event.preventDefault();
      box.classList.remove("measured-over");
      const file = event.dataTransfer.files[0];
      if (file) take(box, own, file);
    });
    own.hidden = false;
  }

  document.querySelectorAll("figure.measured").forEach(setUp);
})();
