"""Does a served index take documents, follow a folder, keep tenants apart and survive kill -9?

Starts the binary that the first argument names, on a folder of its own, and speaks to it with curl as a user would.
Prints one line for each check and exits with 1 at the first deviation. Needs curl and the models in the cache.
"""

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

MODEL = "smollm2-135m-instruct"
CRASHES = 10
KEYS = {"acme": ("acme-key", "own"), "zeta": ("zeta-key", "own"), "press": ("press-key", "shared")}


class Deviation(Exception):
    """The server did something that its users would not expect."""


def check(name, holds, seen=""):
    """Prints a check and stops when it fails."""
    print(f"{'ok  ' if holds else 'FAIL'} {name}: {seen}", flush=True)
    if not holds:
        raise Deviation(name)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """The service, and curl to speak with it."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.process = binary, folder, None
        self.docs = os.path.join(folder, "docs")
        os.mkdir(self.docs)
        self.url = f"http://127.0.0.1:{free_port()}"
        with open(os.path.join(folder, "riposte.toml"), "w") as file:
            file.write("[index]\nwatch_ms = 200\n")
            for name, (key, documents) in KEYS.items():
                digest = hashlib.sha256(key.encode()).hexdigest()
                file.write(f'[keys.{name}]\nsha256 = "{digest}"\ndocuments = "{documents}"\n')

    def start(self):
        command = [self.binary, "--offline", "--config", f"{self.folder}/riposte.toml", "serve", "--model", MODEL,
                   "--kv-mib", "64", "--data", f"{self.folder}/data", "--watch", self.docs, "--listen",
                   self.url.removeprefix("http://")]
        self.log = open(os.path.join(self.folder, "log"), "a")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        until("the server is ready", lambda: self.curl("/readyz", key=None)[0] == 200, 120)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def curl(self, path, *args, key="acme"):
        """Status and JSON of a call."""
        bearer = ["-H", f"authorization: Bearer {KEYS[key][0]}"] if key else []
        command = ["curl", "-s", "-m", "60", "-w", "\n%{http_code}", *bearer, *args, self.url + path]
        done = subprocess.run(command, capture_output=True, text=True)
        body, _, status = done.stdout.rpartition("\n")
        try:
            return int(status or 0), json.loads(body)
        except ValueError:
            return int(status or 0), {}

    def search(self, words, key="acme", **more):
        body = json.dumps({"query": words, **more})
        status, found = self.curl("/v1/search", "-H", "content-type: application/json", "-d", body, key=key)
        if status != 200:
            raise Deviation(f"search for {words}: {status} {found}")
        return [hit["document_id"] for hit in found["hits"] if words.lower() in hit["text"].lower()]

    def put(self, name, text, key="acme", query=""):
        return self.curl(f"/v1/documents/{name}{query}", "-X", "PUT", "--data-binary", text, key=key)


def until(what, holds, seconds=30):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise Deviation(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def takes_documents(server):
    status, made = server.put("minutes.md", "# Minutes\n\nThe zeppelin fund was closed.\n", query="?collection=board&tags=money,closed&date=2026-11-30")
    check("a document is put", status == 201 and made["outcome"] == "created", made)
    check("the next search finds it", server.search("zeppelin") == ["minutes.md"])
    check("a filter that holds finds it", server.search("zeppelin", filter={"collections": ["board"], "tags": ["money"]}) == ["minutes.md"])
    check("one that does not hold does not", server.search("zeppelin", filter={"to": "2026-11-29"}) == [])
    check("another tenant does not", server.search("zeppelin", key="zeta") == [])
    check("nor does a caller without a key", server.curl("/v1/documents", key=None)[0] == 401)
    status, again = server.put("minutes.md", "# Minutes\n\nThe zeppelin fund was closed.\n", query="?collection=board&tags=money,closed&date=2026-11-30")
    check("the same again is not worked on", again["outcome"] == "unchanged", again["outcome"])
    status, _ = server.curl("/v1/documents/minutes.md", "-X", "DELETE")
    check("it is deleted", status == 200 and server.search("zeppelin") == [])
    lines = "\n".join(json.dumps({"id": f"n{n}", "text": f"Note {n} speaks of walnuts."}) for n in range(100))
    write(f"{server.folder}/many.jsonl", lines)
    began = time.monotonic()
    status, job = server.curl("/v1/documents?wait=true", "-H", "content-type: application/x-ndjson", "--data-binary",
                              f"@{server.folder}/many.jsonl", key="press")
    check("a hundred come as a job", job.get("created") == 100, f"{time.monotonic() - began:.1f} s")
    check("everyone finds what is shared", len(server.search("walnuts", key="zeta", limit=100)) > 50)
    write(f"{server.folder}/form.html", "<html><body><h1>Heron</h1><p>Herons wade in marshes.</p></body></html>")
    status, job = server.curl("/v1/documents?wait=true", "-F", "collection=birds", "-F", f"file=@{server.folder}/form.html", key="press")
    check("a form brings files", job.get("created") == 1 and server.search("wade in marshes") == ["form.html"], job)


def follows_a_folder(server):
    write(f"{server.docs}/owls.txt", "Owls hoot in the orchard.\n")
    until("a new file is found", lambda: server.search("orchard") == ["owls.txt"])
    check("a new file is found", True)
    write(f"{server.docs}/owls.txt", "Owls sleep in the belfry.\n")
    until("a changed file is found", lambda: server.search("belfry") == ["owls.txt"] and not server.search("orchard"))
    check("a changed file is found, its old text is not", True)
    os.remove(f"{server.docs}/owls.txt")
    until("a deleted file is not", lambda: not server.search("belfry"))
    check("a deleted file is not found any more", True)


def survives(server, lot):
    """Puts and deletes until it is killed at a random moment; what was acknowledged must stand after the restart."""
    there, gone, count = {}, set(), 0
    for crash in range(CRASHES):
        end, unsure = time.monotonic() + lot.uniform(0.1, 1.5), None
        killer = subprocess.Popen(["sh", "-c", f"sleep {end - time.monotonic():.3f}; kill -9 {server.process.pid}"])
        while server.process.poll() is None:
            count += 1
            name, word = f"k{lot.randrange(20)}", f"quark{count}q"
            if there and lot.random() < 0.25:
                name = lot.choice(sorted(there))
                unsure = (name, None)
                if server.curl(f"/v1/documents/{name}", "-X", "DELETE")[0] == 200:
                    gone.add(there.pop(name))
                    unsure = None
            else:
                unsure = (name, word)
                if server.put(name + ".txt", f"The lab measured {word} today.", query="?format=text")[0] in (200, 201):
                    gone.add(there.get(name + ".txt", ""))
                    there[name + ".txt"] = word
                    unsure = None
        killer.wait()
        server.process.wait()
        server.start()
        open_name = unsure and (unsure[0] if unsure[1] is None else unsure[0] + ".txt")
        for name, word in there.items():
            if name != open_name and name not in server.search(word):
                raise Deviation(f"{name} with {word} was acknowledged and is lost after crash {crash}")
        for word in sorted(gone - {""})[-20:]:
            if server.search(word) and (not unsure or unsure[1] != word):
                raise Deviation(f"{word} was replaced or deleted and is found after crash {crash}")
        if open_name:
            # Either happened; what stands now is the truth from here on.
            there.pop(open_name, None)
            status, shown = server.curl(f"/v1/documents/{open_name}?passages=true")
            if status == 200:
                there[open_name] = shown["passages"][0]["text"].split()[3]
    check("nothing acknowledged is lost", True, f"{CRASHES} times kill -9, {count} changes, {len(there)} documents at the end")


def main():
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(os.path.abspath(sys.argv[1]), folder)
        try:
            server.start()
            takes_documents(server)
            follows_a_folder(server)
            survives(server, random.Random(seed))
        except Deviation as deviation:
            print(f"FAIL {deviation}")
            with open(os.path.join(folder, "log")) as log:
                print(log.read()[-3_000:])
            return 1
        finally:
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
