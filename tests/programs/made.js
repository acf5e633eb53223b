// A function that is always new: each one burns a tenth of a second of CPU time, and then the next one is made.
'use strict';

function make(number) {
    const body = 'for (let i = 0; i < n; i++) { x ^= x << 13; x ^= x >>> 17; x ^= x << 5; } return x;';
    return new Function(`return function made${number}(x, n) { ${body} }`)();
}

require('fs').writeSync(1, 'ready\n');
for (let number = 0, x = 88172645; x !== 0; number++) {
    const burn = make(number);
    const begun = process.cpuUsage().user;
    while (process.cpuUsage().user - begun < 100000) {
        x = burn(x, 100000);
    }
}
