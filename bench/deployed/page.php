<?php
// What php-fpm answers in bench/servers.
header('Content-Type: text/plain');
echo str_repeat('x', 600), "\n";
