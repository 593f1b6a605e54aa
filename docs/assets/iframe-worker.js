// Search on pages opened from the disk: browsers let such a page start no worker, so there the theme's search script runs in
// a hidden frame of the page. The theme looks for the name IFrameWorker, and for this file's name in mkdocs.yml.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      this.ready = new Promise((done, failed) => { script.onload = done; script.onerror = failed; });
      script.src = url;
      this.inside.document.body.append(script);
    }
    postMessage(data) { this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data }))); }
  };
  window.Worker = window.IFrameWorker;
}
