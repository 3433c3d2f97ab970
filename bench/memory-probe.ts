/**
 * Loaded into the service (`--expose-gc --import`) to measure its memory: on any message from the bench it collects
 * garbage and sends the sizes of heap (with external memory) and resident set, in bytes.
 */
process.on('message', () => {
  globalThis.gc?.();
  setTimeout(() => {
    globalThis.gc?.(); // collects what finalizers have released since
    const { heapUsed, external, rss } = process.memoryUsage();
    process.send?.({ heap: heapUsed + external, rss });
  }, 200);
});
process.channel?.unref(); // so that the channel does not keep the service alive
