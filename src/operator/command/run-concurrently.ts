import pLimit from 'p-limit';

/**
 * Runs `task` for every item, at most `concurrency` at a time, and returns the results in the order of the items.
 * @throws the first error of a task: no further task begins, and the error is thrown when the running tasks have ended
 */
export async function runConcurrently<Item, Result>(
  items: readonly Item[],
  concurrency: number,
  task: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const limit = pLimit({ concurrency, rejectOnClear: true });
  const run = async (item: Item): Promise<Result> => {
    try {
      return await task(item);
    } catch (error) {
      limit.clearQueue();
      throw error;
    }
  };
  const settled = await Promise.allSettled(items.map(item => limit(run, item)));
  // Tasks begin in the order of the items, so the error of a task comes before the AbortErrors of tasks that did not
  // begin.
  return settled.map(result => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
