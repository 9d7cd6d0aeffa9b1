// A page that is opened as a file may start no worker, so the search runs in a hidden frame there.
"use strict";

if (location.protocol === "file:") {
    window.IFrameWorker = class extends EventTarget {
        #frame = document.createElement("iframe");
        #loaded;

        constructor(url) {
            super();
            this.#frame.hidden = true;
            document.body.append(this.#frame);
            const inside = this.#frame.contentWindow;
            window.addEventListener("message", ({ source, data }) => {
                if (source === this.#frame.contentWindow) {
                    const message = new MessageEvent("message", { data });
                    this.dispatchEvent(message);
                    this.onmessage?.(message);
                }
            });
            inside.document.open();
            inside.document.write("<html><body></body></html>");
            inside.document.close();
            inside.postMessage = (data) => inside.parent.dispatchEvent(
                new MessageEvent("message", { data, source: inside }),
            );
            inside.importScripts = async (...urls) => {
                for (const one of urls) {
                    await load(inside.document, one);
                }
            };
            this.#loaded = load(inside.document, url);
        }

        async postMessage(data) {
            await this.#loaded;
            const inside = this.#frame.contentWindow;
            inside.dispatchEvent(new inside.MessageEvent("message", { data }));
        }

        terminate() {
            this.#frame.remove();
        }
    };
    window.Worker = window.IFrameWorker;
}

function load(page, url) {
    return new Promise((resolve, reject) => {
        const script = page.createElement("script");
        script.onload = resolve;
        script.onerror = reject;
        script.src = url;
        page.body.append(script);
    });
}
