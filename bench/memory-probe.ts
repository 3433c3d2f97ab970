/**
 * Loaded into the service (`--expose-gc --import`) when its memory is measured: on any message from the bench it collects
 * garbage and says what is left, in bytes.
 */
process.on('message', () => {
  globalThis.gc?.();
  setTimeout(() => {
    globalThis.gc?.(); // what finalizers have freed meanwhile
    const { heapUsed, external, rss } = process.memoryUsage();
    process.send?.({ heap: heapUsed + external, rss });
  }, 200);
});
process.channel?.unref(); // the service ends as it would without
