// Numbers and names as people read them: in the page's tables, at its axes and under the pointer. Pure.
"use strict";

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Rounded as the binary number is: 14.95, which is a little less, is 14.9.
function fixed(value, digits) {
  const rounded = Number(value.toFixed(digits));
  return rounded.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// As many significant digits as asked for; exponents as everybody types them: 3e-05.
function significant(value, digits) {
  const number = Number(value.toPrecision(digits)), size = Math.abs(number);
  if (size === 0 || (size >= 1e-4 && size < 1e15)) return String(number);
  const [mantissa, exponent] = number.toExponential(digits - 1).split("e");
  return `${Number(mantissa)}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

// "8,516", "0.6297", "1.2e-05": four significant digits, all of a number from 1000 on.
function valueText(value) {
  const size = Math.abs(value);
  return size >= 1000 && size < 1e15 ? fixed(value, 0) : significant(value, 4);
}

// "82.6 MiB".
function bytesText(bytes) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(bytes) >= 1000 && unit + 1 < names.length; ++unit) bytes /= 1024;
  return `${fixed(bytes, unit === 0 ? 0 : 1)} ${names[unit]}`;
}

// "168 ms", "14.9 s", "2 min 03 s", "1 h 05 min".
function secondsText(seconds) {
  if (Math.abs(seconds) >= 1e12) return valueText(seconds) + " s";
  if (seconds < 1) return significant(seconds * 1e3, 3) + " ms";
  if (seconds < 100) return fixed(seconds, seconds < 10 ? 2 : 1) + " s";
  const whole = Math.round(seconds), two = (count) => String(count).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
}

// "538 TFLOP".
function operationsText(operations) {
  const names = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"];
  let unit = 0;
  for (; Math.abs(operations) >= 1000 && unit + 1 < names.length; ++unit) operations /= 1000;
  return `${significant(operations, 3)} ${names[unit]}`;
}

const percentText = (share) => fixed(share * 100, 2) + " %";

const units = [["_bytes", bytesText], ["_milliseconds", (ms) => valueText(ms) + " ms"], ["_seconds", secondsText],
  ["_ms", (ms) => valueText(ms) + " ms"]];
const unitOf = (key) => units.find(([end]) => key.endsWith(end) && key.length > end.length) || ["", valueText];

// A key of summary.json or of a metric: "peak_resident_bytes" is "Peak resident"; its unit is in the value.
const nameInWords = (key) => capital(key.slice(0, key.length - unitOf(key)[0].length).replace(/[_.]/g, " "));
const valueInWords = (key, value) => unitOf(key)[1](value);
