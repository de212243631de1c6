// The reader's guess: kept in this browser where that is allowed, else until the page is left.
(() => {
  const kept = new Map();

  function key(box) {
    return `weft-guess:${box.dataset.page}:${box.dataset.guess}`;
  }

  function recall(box) {
    try {
      return localStorage.getItem(key(box)) ?? kept.get(key(box)) ?? null;
    } catch {
      return kept.get(key(box)) ?? null;
    }
  }

  function keep(box, text) {
    kept.set(key(box), text);
    try {
      localStorage.setItem(key(box), text);
    } catch {
      // The guess then lives as long as the page.
    }
  }

  function read(text) {
    const cleaned = text.trim().replace(/\s|%$/g, "").replace(/^(-?\d+),(\d+)$/, "$1.$2");
    return /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(cleaned) ? Number(cleaned) : null;
  }

  const short = (number) => String(Number(number.toPrecision(3)));

  function distance(guess, truth, unit) {
    const off = guess - truth;
    const side = off > 0 ? "too high" : "too low";
    if (Math.abs(off) < 0.005 * Math.abs(truth) || off === 0) return "as good as exact";
    if (unit === "%") return `${short(Math.abs(off))} points ${side}`;
    if (guess > 0 && truth > 0 && (guess >= 2 * truth || truth >= 2 * guess))
      return `a factor of ${short(Math.max(guess / truth, truth / guess))} ${side}`;
    return `${short(Math.abs(off))}${unit ? " " + unit : ""} ${side}`;
  }

  function compare(answer) {
    const text = recall(answer);
    if (text === null) return;
    const { unit, value } = answer.dataset;
    const said = unit ? `${text} ${unit}` : text;
    const truth = answer.querySelector(".guess-value").textContent;
    const line = answer.querySelector(".guess-compare");
    line.textContent =
      `You guessed ${said}; it is ${truth}: ${distance(Number(text), Number(value), unit)}.`;
    line.hidden = false;
    answer.querySelector("details").open = true;
  }

  const answers = [...document.querySelectorAll(".weft-guess-answer")];

  function setUp(box) {
    const form = box.querySelector("form");
    const field = form.querySelector("input");
    const status = form.querySelector("[role=status]");
    const old = recall(box);
    if (old !== null) {
      field.value = old;
      status.textContent = "Your guess from before; change it if you like.";
    }
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const number = read(field.value);
      field.setAttribute("aria-invalid", String(number === null));
      if (number === null) {
        status.textContent = "Please write a number, such as 12 or 0.5.";
        return;
      }
      keep(box, String(number));
      status.textContent = "Kept. The answer comes further down.";
      answers.filter((answer) => key(answer) === key(box)).forEach(compare);
    });
    form.hidden = false;
  }

  document.querySelectorAll(".weft-guess").forEach(setUp);
  answers.forEach(compare);
})();
