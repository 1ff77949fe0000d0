<?php
// Counts the pages that a visitor has seen, in a session that PHP keeps in memcached (session.save_handler).
session_start();
$_SESSION['pages'] = ($_SESSION['pages'] ?? 0) + 1;
echo 'page ', $_SESSION['pages'], "\n";
