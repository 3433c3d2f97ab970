/**
 * Loaded into the service (`--expose-gc --import`) to measure its memory: on a message from the
 * bench it sends the sizes of heap (with external memory) and resident set, in bytes. It
 * collects garbage first if the message is `collect`.
 */
process.on('message', message => {
  const send = (): void => {
    const { heapUsed, external, rss } = process.memoryUsage();
    process.send?.({ heap: heapUsed + external, rss });
  };
  if (message !== 'collect') return send();
  globalThis.gc?.();
  setTimeout(() => {
    globalThis.gc?.(); // collects what finalizers have released since
    send();
  }, 200);
});
process.channel?.unref(); // so that the channel does not keep the service alive
