// With which key does the page call? The one that the visitor gave, kept until the tab is closed.

const PLACE = "riposte-key";

function withKey(options) {
  const key = sessionStorage.getItem(PLACE);
  if (!key) return options;
  return { ...options, headers: { ...options.headers, authorization: `Bearer ${key}` } };
}

let asking = null;

/** Asks for a key; callers that need one at the same time share the question. */
function askForKey() {
  asking ??= Promise.resolve().then(() => {
    const key = window.prompt("This service wants a key. It is kept until this tab is closed.")?.trim();
    if (key) sessionStorage.setItem(PLACE, key);
    asking = null;
    return Boolean(key);
  });
  return asking;
}

/** Calls the service; when it wants another key, asks for it once and calls again. */
export async function call(path, options = {}) {
  const response = await fetch(path, withKey(options));
  if (response.status !== 401 || options.keepalive || !(await askForKey())) return response;
  return fetch(path, withKey(options));
}
