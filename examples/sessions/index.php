<?php
// A site whose visitors log in. Their sessions are in the larderd beside it (session.save_handler = memcached).
session_start();
if (isset($_GET['login'])) {
    $_SESSION = ['name' => $_GET['login'], 'pages' => 0];
}
if (isset($_GET['logout'])) {
    session_destroy();
    $_SESSION = [];
}
if (isset($_SESSION['name'])) {
    $_SESSION['pages']++;
    echo $_SESSION['name'], ', page ', $_SESSION['pages'], "\n";
} else {
    echo "please log in\n";
}
