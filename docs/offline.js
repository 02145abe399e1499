// Browsers start no workers from files. The search then runs in a hidden frame, so that it also works without a server.
(() => {
  if (location.protocol !== "file:") return;
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame.contentWindow;
      this.loaded = new Promise((resolve) => { this.frame.whenLoaded = resolve; });
      this.frame.received = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const source = new URL(url, location.href).href.replaceAll('"', "%22");
      const page = frame.contentDocument;
      page.open();
      page.write(
        "<script>var postMessage = (data) => received(data);" +
        "var importScripts = (...urls) => urls.reduce((before, src) => before.then(() => new Promise((resolve, reject) => {" +
        "const script = document.createElement('script'); script.onload = resolve; script.onerror = reject;" +
        "script.src = src; document.body.appendChild(script); })), Promise.resolve());</" + "script><body>" +
        '<script src="' + source + '" onload="whenLoaded()"></' + "script>"
      );
      page.close();
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.dispatchEvent(new this.frame.MessageEvent("message", { data })));
    }
    terminate() { this.frame.frameElement.remove(); }
  }
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
