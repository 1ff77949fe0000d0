<?php
// How both clients of PHP describe a value. See ../README.md.

function describe(mixed $value): string
{
    return match (true) {
        is_string($value) => rtrim('bytes ' . bin2hex($value)),
        is_int($value) => "integer $value",
        is_float($value) => 'float ' . (is_finite($value) ? sprintf('%.17g', $value) : strtolower((string) $value)),
        is_bool($value) => 'bool ' . ($value ? 'true' : 'false'),
        default => serialized('php', serialize($value)),
    };
}

function serialized(string $format, string $bytes): string
{
    $told = strlen($bytes) <= 100 ? bin2hex($bytes) : '@crc ' . strlen($bytes) . ' ' . hash('crc32b', $bytes);
    return "serialized $format $told";
}

function plain_values(): array
{
    return [
        'empty' => '', 'ascii' => 'abc', 'utf8' => 'grüße', 'binary' => "\x00\xff\x80\r\n",
        'zero' => 0, 'minus' => -1, 'small' => 42, 'large' => PHP_INT_MAX, 'least' => PHP_INT_MIN,
        'fraction' => 1.5, 'tenth' => -0.1, 'whole' => 2.0, 'huge' => 1e100,
        'infinite' => INF, 'least-infinite' => -INF,
        'true' => true, 'false' => false,
    ];
}

function lines(int $count): string
{
    return implode('', array_map(fn ($i) => "line $i\n", range(0, $count - 1)));
}

/** A block of bytes from a linear congruential generator, repeated. */
function blocks(int $block_bytes, int $total_bytes): string
{
    $block = '';
    for ($x = 1, $i = 0; $i < $block_bytes; $i++) {
        $x = ($x * 1103515245 + 12345) & 0x7fffffff;
        $block .= chr($x >> 16 & 255);
    }
    return substr(str_repeat($block, intdiv($total_bytes, $block_bytes) + 1), 0, $total_bytes);
}

function read_all(callable $get): void
{
    while (($line = fgets(STDIN)) !== false) {
        $name = trim($line);
        echo "$name\t", describe($get($name)), "\n";
    }
}
