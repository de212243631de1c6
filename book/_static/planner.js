// The planner: what the form says goes to Python in this page, and its answer comes back as HTML.
// Nothing is sent anywhere: the worker loads the library from the book's own files.
(() => {
  const here = new URL("./", document.currentScript.src).href;
  const FROM_DISK =
    "To plan, this page has to come from a web server: Python in the page plans, and browsers do " +
    "not allow that for files on the disk. <code>make read</code> starts a server.";

  function setUp(box) {
    const form = box.querySelector("form");
    const answer = box.querySelector(".planner-answer");
    const status = box.querySelector(".explore-status");
    const bar = box.querySelector("progress");
    const go = form.querySelector("button[type=submit]");
    const text = form.querySelector("textarea");
    let worker, serial = 0, asked;

    function values(row) {
      const named = [...form.elements].filter((field) => field.dataset.kind);
      const read = (field) =>
        field.dataset.kind !== "number" ? field.value
          : field.value === "" ? null : Number(field.value);
      return [...named.map((field) => [field.name, [read(field)]]), ["row", [row]]];
    }

    function start() {
      worker = new Worker(here + "explore-worker.mjs", { type: "module" });
      worker.onmessage = ({ data }) => {
        if (data.id !== serial) return;
        if ("progress" in data) {
          status.textContent = "Searching …";
          bar.value = data.progress;
        } else if ("picture" in data) done(data.picture);
        else failed(data.error);
      };
      worker.onerror = (event) => failed(event.message || "the worker did not start");
    }

    function ask(controls) {
      if (location.protocol === "file:") {
        status.innerHTML = FROM_DISK;
        return;
      }
      try {
        if (!worker) {
          status.textContent = "Starting Python in this page, once …";
          start();
        } else status.textContent = "Planning …";
      } catch (error) {
        return failed(error.message);
      }
      go.disabled = true;
      bar.hidden = false;
      bar.removeAttribute("value");
      box.setAttribute("aria-busy", "true");
      asked = controls;
      const chosen = controls.map(() => 0);
      const target = box.dataset.target;
      worker.postMessage({ id: ++serial, here, target, controls: JSON.stringify(controls), chosen });
    }

    function rest() {
      go.disabled = false;
      bar.hidden = true;
      box.removeAttribute("aria-busy");
    }

    function done(html) {
      rest();
      status.textContent = "";
      answer.innerHTML = html;
      box.dispatchEvent(new CustomEvent("weft-planned", { detail: html }));
    }

    function failed(message) {
      rest();
      status.textContent = `There is no plan: ${message}`;
      worker?.terminate();
      worker = undefined;
    }

    async function copy(button) {
      const pre = button.closest(".planner-config").querySelector("pre");
      try {
        await navigator.clipboard.writeText(pre.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(pre);
        button.textContent = "Selected: copy it with the keyboard";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    }

    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!go.disabled) ask(values(1));
    });
    form.querySelector("input[type=file]").addEventListener("change", async (event) => {
      const [file] = event.target.files;
      if (!file) return;
      text.value = await file.text();
      instead();
    });
    answer.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.copy !== undefined) copy(button);
      else if (button?.dataset.row && !go.disabled) {
        const before = asked ?? values(1);
        const row = ["row", [Number(button.dataset.row)]];
        ask([...before.filter(([name]) => name !== "row"), row]);
      }
    });
    const instead = () => (form.elements.model.disabled = text.value.trim() !== "");
    text.addEventListener("input", instead);
    instead(); // a browser that comes back to the page may have kept the text
    form.hidden = false;
  }

  document.querySelectorAll(".planner").forEach(setUp);
})();
