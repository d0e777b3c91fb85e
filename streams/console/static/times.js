// Show times in the reader's time zone, with UTC on hover. Without this script they are in UTC.
"use strict";

const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function showTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    time.title = time.textContent;
    time.textContent = zoned.format(new Date(time.dateTime));
  }
}

showTimes(document);
