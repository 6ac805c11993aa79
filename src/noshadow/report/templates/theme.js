/* The theme follows the system until the button is pressed; the choice lives as long as the page and is stored nowhere. */
function themeSwitch(button) {
  const root = document.documentElement;
  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);
  const changed = () => {
    button.textContent = isDark() ? "light theme" : "dark theme";
    document.dispatchEvent(new Event("theme"));
  };
  button.onclick = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    changed();
  };
  preferred.addEventListener("change", changed);
  button.hidden = false;
  changed();
}
themeSwitch(document.getElementById("theme"));

