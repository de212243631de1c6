// Boxes with sliders. Each control's value is a position among the values that the page names,
// so the page and the library cannot disagree about what 0.25 is.
(() => {
  const here = new URL("./", document.currentScript.src).href;
  const READ_FROM_A_SERVER =
    "To move this one, the page has to come from a web server: the picture is computed by Python " +
    "in the page, and browsers do not allow that for files on the disk. " +
    "<code>make read</code> starts a server.";

  // --- Python in the page: one worker for all boxes, started when one comes near --------------
  const NEAR = "60% 0px"; // of the window's height, above and below it
  const STAYS = 400; // ms for which a box is near before Python starts: nobody scrolls past so long
  let worker, failed, ready = false, serial = 0;
  const waiting = new Map();

  function startWorker() {
    worker = new Worker(here + "explore-worker.mjs", { type: "module" });
    worker.onmessage = ({ data }) => {
      if ("ready" in data) ready = true;
      if (data.id === undefined || "progress" in data) return;
      ready = true;
      const { settle, refuse } = waiting.get(data.id);
      waiting.delete(data.id);
      "picture" in data ? settle(data.picture) : refuse(new Error(data.error));
    };
    worker.onerror = (event) => {
      failed = new Error(event.message || "the worker did not start");
      for (const { refuse } of waiting.values()) refuse(failed);
      waiting.clear();
    };
  }

  function askPython(target, controls, chosen) {
    return new Promise((settle, refuse) => {
      if (failed) return refuse(failed);
      try {
        if (!worker) startWorker();
      } catch (error) {
        failed = error;
        return refuse(error);
      }
      const id = ++serial;
      waiting.set(id, { settle, refuse });
      worker.postMessage({ id, here, target, controls, chosen });
    });
  }

  function startWhenNear(box) {
    if (location.protocol === "file:" || navigator.connection?.saveData) return;
    let soon;
    const watch = new IntersectionObserver(([{ isIntersecting }]) => {
      clearTimeout(soon);
      if (isIntersecting) soon = setTimeout(start, STAYS);
    }, { rootMargin: NEAR });

    function start() {
      watch.disconnect();
      if (worker || failed) return;
      try {
        startWorker();
        worker.postMessage({ here });
      } catch { /* the first move says what is wrong */ }
    }

    watch.observe(box);
  }

  // --- pictures that came with the page -------------------------------------------------------
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  function frameDrawer(script, sizes) {
    let frames;
    return async (chosen) => {
      frames ??= unpack(script.textContent);
      const position = chosen.reduce((sum, at, i) => sum * sizes[i] + at, 0);
      return (await frames)[position];
    };
  }

  const BEAT = 1200; // ms between two pictures of a box that plays

  // --- one box --------------------------------------------------------------------------------
  let explained = false;

  function explain(status) {
    if (!explained) status.innerHTML = READ_FROM_A_SERVER;
    explained = true;
  }

  function position(field) {
    if (field.type === "checkbox") return Number(field.checked);
    return field.tagName === "SELECT" ? field.selectedIndex : Number(field.value);
  }

  function showValue(field) {
    if (field.type !== "range") return;
    const text = JSON.parse(field.dataset.texts)[position(field)];
    field.setAttribute("aria-valuetext", text);
    field.previousElementSibling.value = text;
  }

  function setUp(box) {
    const form = box.querySelector("form");
    const view = box.querySelector(".explore-view");
    const status = box.querySelector(".explore-status");
    const spoken = box.querySelector(".explore-spoken");
    const script = box.querySelector('script[type="application/x-frames"]');
    const fields = [...form.querySelectorAll("[data-control]")];
    const { target, controls } = box.dataset;
    const sizes = JSON.parse(controls).map(([, values]) => values.length);
    const fromFrames = script && frameDrawer(script, sizes);
    let latest = 0, timer, running = false, wanted = false, playing = false;

    function show(picture, turn) {
      const left = view.querySelector(".weft-scroll")?.scrollLeft ?? 0;
      view.innerHTML = picture;
      if (left) view.querySelector(".weft-scroll")?.scrollTo(left, 0);
      const words = view.querySelector(".weft-summary, .explore-note");
      if (!playing) spoken.textContent = (words ?? view.querySelector("title"))?.textContent ?? "";
      box.dispatchEvent(new CustomEvent("weft-shown", { detail: { turn, picture } }));
    }

    async function draw() {
      const turn = latest;
      try {
        const chosen = fields.map(position);
        const drawer = fromFrames || ((now) => askPython(target, controls, now));
        const picture = await drawer(chosen);
        if (turn === latest) show(picture, turn);
        status.textContent = "";
      } catch (error) {
        if (location.protocol === "file:" && !fromFrames) explain(status);
        else status.textContent = `This picture could not be drawn: ${error.message}`;
      }
    }

    // Python draws one picture at a time, and after it only the newest that was asked for.
    async function drawNewest() {
      wanted = true;
      if (running) return;
      running = true;
      box.setAttribute("aria-busy", "true");
      while (wanted) {
        wanted = false;
        await draw();
      }
      box.removeAttribute("aria-busy");
      running = false;
    }

    function moved() {
      latest += 1;
      fields.forEach(showValue);
      if (fromFrames) return draw();
      if (!ready && !failed) status.textContent = "Starting Python in this page, once …";
      clearTimeout(timer);
      timer = setTimeout(drawNewest, 60);
    }

    // One control moves by itself, forth and back, while the box is in sight; whoever touches a
    // control stops it, and who asks for less motion starts it.
    function setUpPlaying() {
      const field = fields[Number(box.dataset.plays)];
      const button = document.createElement("button");
      let beat, step = 1, inSight = false;
      button.type = "button";
      button.className = "explore-play";

      function advance() {
        if (!inSight) return;
        if (position(field) + step > Number(field.max) || position(field) + step < 0) step = -step;
        field.value = position(field) + step;
        moved();
      }

      function turn(on) {
        playing = on;
        clearInterval(beat);
        if (on) beat = setInterval(advance, BEAT);
        button.textContent = on ? "Pause" : "Play";
      }

      button.addEventListener("click", () => turn(!playing));
      form.addEventListener("input", () => turn(false), { capture: true });
      new IntersectionObserver(([seen]) => (inSight = seen.isIntersecting)).observe(box);
      form.append(button);
      turn(!matchMedia("(prefers-reduced-motion: reduce)").matches);
    }

    form.addEventListener("input", moved);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    if (!fromFrames) startWhenNear(box);
    if (box.dataset.plays) setUpPlaying();
    // A browser that comes back to the page may keep the sliders where they were left.
    if (fields.some((field) => position(field) !== Number(field.dataset.default))) moved();
  }

  document.querySelectorAll("figure.explore").forEach(setUp);
})();
