/** Whether an ISO 8601 time begins with a day of the calendar: `Date` takes 30 February for 2 March. */
export function beginsWithCalendarDay(time: string): boolean {
  const day = /^\d{4}-\d\d-\d\d(?=$|[T ])/.exec(time)?.[0];
  const date = new Date(`${day}T00:00:00Z`);
  return day !== undefined && !Number.isNaN(date.getTime()) && date.toISOString().startsWith(day);
}
