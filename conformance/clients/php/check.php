<?php
// What the programs for PHP's two extensions share.

$checks = 0;
// Sessions and headers want that nothing is printed before they are done.
ob_start();
// The extensions warn of what the checks expect: failures.
error_reporting(E_ALL & ~E_WARNING & ~E_NOTICE & ~E_DEPRECATED);

function same(string $what, mixed $got, mixed $want): void
{
    global $checks, $name;
    $checks++;
    if ($got !== $want) {
        $said = sprintf("%s: %s: got %.200s, want %.200s\n", $name, $what, json_encode($got), json_encode($want));
        fwrite(STDERR, $said);
        exit(1);
    }
}

function done(string $version): void
{
    global $checks, $name;
    ob_end_clean();
    echo "$name $version: $checks checks\n";
}

/** The flags of an item as a second connection sees them in the text protocol. */
function raw_flags(string $host, string $port, string $key): ?int
{
    $socket = fsockopen($host, (int) $port);
    fwrite($socket, "get $key\r\n");
    $words = explode(' ', fgets($socket));
    fclose($socket);
    return $words[0] === 'VALUE' ? (int) $words[2] : null;
}

/** A session is stored, locked, found again by its id, and destroyed. */
function session_round_trip(string $handler, string $path): void
{
    ini_set('session.save_handler', $handler);
    ini_set('session.save_path', $path);
    ini_set('session.use_cookies', '0');
    $cart = ['apples' => 3, 'note' => "käse\r\n\0"];
    session_start();
    $id = session_id();
    $_SESSION['cart'] = $cart;
    session_write_close();

    $_SESSION = [];
    session_id($id);
    session_start();
    same('a session comes back', $_SESSION['cart'] ?? null, $cart);
    session_destroy();

    session_id($id);
    session_start();
    same('a destroyed session is gone', $_SESSION, []);
    session_write_close();
}
