// A table that is wider than the column breaks out of it to the right, over the page's contents,
// which step aside while it is in sight. On a narrow screen it is scrolled, as without this script.
(async () => {
  const TABLES = ".bd-article .pst-scrollable-table-container, .bd-article .measured-scroll";
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
    if (missing <= 0) return;
    frame.style.setProperty("--weft-wide", `${frame.offsetWidth + missing + 1}px`);
    frame.classList.add("weft-wide");
    watch.observe(frame);
  }

  const all = () => document.querySelectorAll(TABLES).forEach(breakOut);
  await document.fonts.ready; // which decide how wide a table is
  all();
  addEventListener("resize", all);
})();
