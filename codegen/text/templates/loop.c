$pragma
for (int64_t $index = $low; $index < $high; $index++) {
    $body
}
