const $type shape = {
    $fields
};
$function($operands, shape);
