// Which colours? The stored choice, set before the first paint so that nothing flashes; without one, the system's.
(() => {
  const key = "riposte-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem(key); } catch { return null; }
  };
  const choice = stored();
  if (choice === "dark" || choice === "light") root.dataset.theme = choice;
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const now = root.dataset.theme ?? (system.matches ? "dark" : "light");
      root.dataset.theme = now === "dark" ? "light" : "dark";
      try { localStorage.setItem(key, root.dataset.theme); } catch { /* Private windows may refuse; the choice lasts until reload. */ }
    });
  });
})();
