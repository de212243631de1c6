// Tables that are wider than the column. On a wide window one breaks out of it to the right, over
// the page's contents, which step aside while it is in sight; on a phone each row of a table in the
// text becomes a card, with the column's name before each cell. Without this script they scroll.
(async () => {
  const TEXT = ".bd-article .pst-scrollable-table-container";
  const MEASURED = ".bd-article .measured-scroll";
  const phone = matchMedia("(max-width: 40rem)");
  const contents = document.querySelector(".bd-sidebar-secondary");
  const inSight = new Set();
  const watch = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen)
      isIntersecting ? inSight.add(target) : inSight.delete(target);
    contents?.classList.toggle("weft-aside", inSight.size > 0);
  });

  function breakOut(table) {
    const frame = table.closest("figure.weft-box") ?? table;
    frame.classList.remove("weft-wide");
    watch.unobserve(frame);
    inSight.delete(frame);
    const missing = table.scrollWidth - table.clientWidth;
    if (missing <= 0 || phone.matches) return;
    frame.style.setProperty("--weft-wide", `${frame.offsetWidth + missing + 1}px`);
    frame.classList.add("weft-wide");
    watch.observe(frame);
  }

  function asCards(box) {
    box.classList.remove("weft-cards");
    const names = [...box.querySelectorAll("thead tr:only-child > th")];
    if (!phone.matches || !names.length || box.scrollWidth <= box.clientWidth + 1) return;
    if (!box.querySelector(".weft-column")) box.querySelectorAll("tbody tr").forEach(name);
    box.classList.add("weft-cards");

    function name(row) {
      for (const [i, cell] of [...row.cells].entries()) {
        if (i === 0 || !names[i]?.textContent.trim()) continue;
        const label = document.createElement("span");
        label.className = "weft-column";
        label.innerHTML = names[i].innerHTML; // with its formulas
        cell.prepend(label);
      }
    }
  }

  function all() {
    document.querySelectorAll(TEXT).forEach(asCards);
    document.querySelectorAll(`${TEXT}, ${MEASURED}`).forEach(breakOut);
    contents?.classList.toggle("weft-aside", false);
  }

  if (document.readyState !== "complete")
    await new Promise((loaded) => addEventListener("load", loaded, { once: true }));
  await window.MathJax?.startup?.promise; // formulas and fonts decide how wide a table is
  await document.fonts.ready;
  all();
  addEventListener("resize", all);
})();
