// Truth: burn10, burn20, burn30 and burn40 take 10, 20, 30 and 40 %, as in Shares.java. Run with `--no-turbo-inlining`, or
// they are one function. The program does not notice the end of its parent: the test kills it.
'use strict';

let sink = 88172645;

function burn10(x, n) {
    for (let i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >>> 17;
        x ^= x << 5;
    }
    return x;
}

function burn20(x, n) {
    for (let i = 0; i < 2 * n; i++) {
        x ^= x << 13;
        x ^= x >>> 17;
        x ^= x << 5;
    }
    return x;
}

function burn30(x, n) {
    for (let i = 0; i < 3 * n; i++) {
        x ^= x << 13;
        x ^= x >>> 17;
        x ^= x << 5;
    }
    return x;
}

function burn40(x, n) {
    for (let i = 0; i < 4 * n; i++) {
        x ^= x << 13;
        x ^= x >>> 17;
        x ^= x << 5;
    }
    return x;
}

function round() {
    const n = 20000 + (sink >>> 16);
    sink = burn40(burn30(burn20(burn10(sink, n), n), n), n);
}

for (let i = 0; i < 600; i++) {
    round();
}
require('fs').writeSync(1, 'ready\n');
while (sink !== 0) {
    round();
}
