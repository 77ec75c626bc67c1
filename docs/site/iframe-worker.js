// Search runs in a worker, which browsers refuse to pages opened from a folder (file://). There this stands in
// for it: a hidden frame that runs the worker's script and passes messages to and fro.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...addresses) => Promise.all(addresses.map((address) => this.load(inside, address)));
      this.ready = this.load(inside, url).then(() => inside);
      this.addEventListener("message", (event) => this.onmessage && this.onmessage(event));
    }

    load(inside, address) {
      return new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, location.href);
        script.onload = done;
        script.onerror = failed;
        inside.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.ready.then((inside) => inside.frameElement.remove());
    }
  };
}
