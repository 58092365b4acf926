"""What Spark's functions are: row expressions, aggregates, generators, or such that answer differently each time.

The lists were taken from Spark 4.3's own registry. A name that is in none of them (a user's function) is not
trusted: it might aggregate, or look at the clock, and the view is then computed in full."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot import exp


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Answers depend on the moment, the session, the place of a row, or chance.
_UNSTEADY = _names(
    """
    aes_encrypt rand randn random randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id
    input_file_name input_file_block_start input_file_block_length java_method reflect try_reflect now curdate
    current_date current_time current_timestamp localtimestamp current_timezone current_user session_user user
    current_catalog current_database current_schema current_path version
    """
)
_UNSTEADY_CLASSES = _names(
    """
    Rand Randn Randstr Uniform Uuid Shuffle CurrentDate CurrentTime CurrentTimestamp CurrentDatetime Localtime
    Localtimestamp CurrentUser SessionUser CurrentCatalog CurrentDatabase CurrentSchema CurrentTimezone
    CurrentVersion
    """
)
_UNSTEADY_NODES: tuple[type[exp.Expr], ...] = tuple(getattr(exp, n) for n in _UNSTEADY_CLASSES if hasattr(exp, n))
_CHANCE = _names(
    "rand randn random randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id input_file_name"
)
_CHANCE_NODES: tuple[type[exp.Expr], ...] = tuple(
    getattr(exp, n) for n in _names("Rand Randn Randstr Uniform Uuid Shuffle") if hasattr(exp, n)
)
# Strings that Spark takes for a moment: timestamp'now'.
_MOMENTS = re.compile(r"\s*(now|today|yesterday|tomorrow)\b", re.I)

# Row expressions that sqlglot has no class for.
_ROW = _names(
    """
    aes_decrypt array_repeat array_union arrays_overlap assert_true bigint bin binary bround btrim
    cardinality conv crc32 date_part datepart decimal e expm1 find_in_set forall format_number from_avro
    from_csv from_protobuf from_xml get hash hll_sketch_estimate hll_union hmac hypot is_valid_utf8
    is_valid_variant is_variant_null isnotnull isnull jaro_winkler_similarity json_array_length log1p luhn_check
    make_date make_dt_interval make_time make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval
    map_concat map_entries map_filter map_values map_zip_with mask nullifzero octet_length pmod positive printf
    quote raise_error regexp schema_of_csv schema_of_json schema_of_variant schema_of_xml sentences
    shiftrightunsigned smallint time_bucket time_from_micros time_from_millis time_from_seconds time_to_micros
    time_to_millis time_to_seconds timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint
    to_avro to_csv to_protobuf to_time to_timestamp_ltz to_timestamp_ntz to_varchar to_variant_object to_xml
    transform_keys transform_values try_aes_decrypt try_make_interval try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_mod try_parse_json try_parse_url try_to_binary try_to_date try_to_number
    try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get unix_nanos url_decode
    url_encode validate_utf8 variant_get weekday xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string xxhash64 zeroifnull zip_with
    """
)
_GENERATORS = _names("inline_outer json_tuple stack variant_explode variant_explode_outer")
_AGGREGATES = _names(
    """
    mean some every any std try_sum try_avg bitmap_and_agg collect_union count_min_sketch histogram_numeric
    hll_sketch_agg hll_union_agg measure schema_of_variant_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float theta_intersection_agg
    theta_sketch_agg theta_union_agg tuple_intersection_agg_double tuple_intersection_agg_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer vector_avg
    vector_sum
    """
)
_WINDOW_ONLY = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead)
# What wraps an aggregate and belongs to it.
_WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


def walk_block(root: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of one SELECT's clause; a query inside it is yielded, not entered."""
    return iter(root.walk(prune=lambda node: isinstance(node, exp.Query)))


def is_aggregate(node: exp.Expr) -> bool:
    """A call that folds many rows into one value (used with OVER it is a window function, see `aggregates`)."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in _AGGREGATES
    if isinstance(node, exp.Any):
        return not isinstance(node.parent, exp.Like | exp.ILike)  # LIKE ANY (…) is none
    return isinstance(node, exp.AggFunc) and not isinstance(node, _WINDOW_ONLY)


def is_generator(node: exp.Expr) -> bool:
    """A call that makes several rows of one. Deterministic ones are row expressions: the rows it makes depend on the
    one row only."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in _GENERATORS
    return isinstance(node, exp.UDTF | exp.Explode | exp.Posexplode | exp.Inline) and not isinstance(node, exp.Query)


def is_chance(node: exp.Expr) -> bool:
    """A call whose value is chance, or depends on how rows happen to lie; not one that only looks at the clock."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in _CHANCE
    return isinstance(node, _CHANCE_NODES)


def aggregates(root: exp.Expr) -> list[exp.Expr]:
    """Outermost aggregate calls in an expression, with FILTER (…) and the like, in the order of the text."""
    found: list[exp.Expr] = []

    def visit(node: exp.Expr) -> None:
        if isinstance(node, exp.Query):
            return
        inner = node
        while isinstance(inner, _WRAPPERS):
            inner = inner.this
        if isinstance(node, exp.Window):
            # the aggregate itself runs over rows of this level, but its arguments may hold real aggregates
            for child in node.this.iter_expressions():
                visit(child)
            for key in ("partition_by", "order"):
                value = node.args.get(key)
                for child in value if isinstance(value, list) else [value] if value else []:
                    visit(child)
        elif is_aggregate(inner):
            found.append(node)
        else:
            for child in node.iter_expressions():
                visit(child)

    visit(root)
    return sorted(found, key=_place)


def _place(node: exp.Expr) -> int:
    return min((n.meta["start"] for n in node.walk() if "start" in n.meta), default=0)


def unsteady(root: exp.Expr, name_of: Callable[[exp.Expr], str]) -> str | None:
    """Why an expression might not give the same value for the same row tomorrow; None if it does."""
    for node in walk_block(root):
        if isinstance(node, exp.Anonymous):
            name = str(node.this).lower()
            if name in _UNSTEADY:
                return f"{name}() gives another answer each time"
            if name not in _ROW and name not in _GENERATORS and name not in _AGGREGATES:
                return f"{name}() is not a function known to give the same answer for the same row"
        elif isinstance(node, exp.QueryTransform):
            return "TRANSFORM runs a script"
        elif isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and _MOMENTS.match(str(node.this.this)):
            return f"'{node.this.this}' is another moment each time"
        elif isinstance(node, _UNSTEADY_NODES) or (isinstance(node, exp.Func) and name_of(node) in _UNSTEADY):
            return f"{name_of(node)} gives another answer each time"
    return None


# The functions of Spark 4.3, from its own registry (SHOW ALL FUNCTIONS); operators are left out.

_TEXT = """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array
    array_agg array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 between bigint
    bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position
    bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim
    cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    collations collect_list collect_set collect_union concat concat_ws contains conv convert_timezone corr cos cosh
    cot count count_if count_min_sketch counter_diff covar_pop covar_samp crc32 csc cume_dist curdate
    current_catalog current_database current_date current_path current_schema current_time current_timestamp
    current_timezone current_user date date_add date_diff date_format date_from_unix_date date_part date_sub
    date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees
    dense_rank div double e element_at elt encode endswith equal_null every exists exp explode explode_outer expm1
    extract factorial filter find_in_set first first_value flatten float floor forall format_number format_string
    from_avro from_base32 from_csv from_json from_protobuf from_unixtime from_utc_timestamp from_xml get
    get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hll_sketch_agg
    hll_sketch_estimate hll_union hll_union_agg hmac hour hypot if ifnull ilike in initcap inline inline_outer
    input_file_block_length input_file_block_start input_file_name instr int is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull jaro_winkler_similarity java_method json_array_length json_object_keys
    json_tuple kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least
    left len length levenshtein like listagg ln localtime localtimestamp locate log log10 log1p log2 lower lpad
    ltrim luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean measure median min
    min_by minute mod mode monotonically_increasing_id month monthname months_between named_struct nanvl negative
    next_day not now nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url
    percent_rank percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer
    position positive pow power printf python_worker_logs quarter quote radians raise_error rand randn random
    randstr range rank reduce reflect regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike round row_number rpad rtrim schema_of_avro
    schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml sec second sentences
    sequence session_user session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum
    sin sinh size skewness slice smallint some sort_array soundex space spark_partition_id split split_part
    sql_keywords sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack startswith std stddev
    stddev_pop stddev_samp str_to_map string string_agg struct substr substring substring_index sum tan tanh
    theta_difference theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union
    theta_union_agg time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
    time_to_millis time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis timestamp_nanos
    timestamp_seconds tinyint to_avro to_base32 to_binary to_char to_csv to_date to_json to_number to_protobuf
    to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt
    try_avg try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz
    try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_reflect try_subtract try_sum
    try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
    try_variant_array_append try_variant_get try_variant_insert try_variant_set tuple_difference_double
    tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_nanos
    unix_seconds unix_timestamp upper url_decode url_encode user uuid validate_utf8 var_pop var_samp variance
    variant_array_append variant_delete variant_explode variant_explode_outer variant_get variant_insert
    variant_set variant_strip_nulls vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance
    vector_norm vector_normalize vector_sum version weekday weekofyear when width_bucket window window_time xpath
    xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year
    zeroifnull zip_with
"""
FUNCTIONS = frozenset(_TEXT.split())


# The functions that a query from outside may call. Whatever is not named here is refused: a new version of Spark may bring functions that
# read files, call other systems or load code, and nobody would notice


def _names_allowed(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED = _names_allowed(
    """
    abs acos acosh add_months array_repeat lpad repeat rpad sequence space aggregate any any_value approx_count_distinct approx_percentile array array_agg
    array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_size array_sort array_union arrays_overlap
    arrays_zip ascii asin asinh atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count bit_get
    bit_length bit_or bit_xor bool_and bool_or boolean bround btrim cardinality cast cbrt ceil ceiling char
    char_length character_length chr coalesce collect_list collect_set concat concat_ws contains conv
    convert_timezone corr cos cosh cot count count_if covar_pop covar_samp crc32 csc cume_dist current_date
    current_timestamp date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank double e element_at
    elt encode endswith equal_null every exists exp explode explode_outer expm1 extract factorial filter find_in_set
    first first_value flatten float floor forall format_number format_string from_csv from_json from_unixtime
    from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hour hypot
    if ifnull ilike initcap inline inline_outer instr int isnan isnotnull isnull json_array_length json_object_keys
    json_tuple kurtosis lag last last_day last_value lcase lead least left len length levenshtein like listagg ln
    locate log log10 log1p log2 lower ltrim make_date make_dt_interval make_interval make_timestamp
    make_timestamp_ltz make_timestamp_ntz make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with max max_by md5 mean median min min_by minute mod
    mode month monthname months_between named_struct nanvl negative next_day now nth_value ntile nullif nullifzero nvl
    nvl2 octet_length overlay parse_url percent_rank percentile percentile_approx percentile_cont percentile_disc pi
    pmod posexplode posexplode_outer position positive pow power printf quarter radians rank reduce regexp
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy replace reverse right rint rlike
    round row_number rtrim sec second sha sha1 sha2 shiftleft shiftright sign signum sin sinh size skewness slice
    smallint some sort_array soundex split split_part sqrt stack startswith std stddev stddev_pop stddev_samp
    str_to_map string string_agg struct substr substring substring_index sum tan tanh time_bucket timestamp
    timestamp_micros timestamp_millis timestamp_seconds tinyint to_char to_date to_json to_number to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp transform transform_keys transform_values
    translate trim trunc try_add try_avg try_cast try_divide try_element_at try_mod try_multiply try_subtract try_sum
    try_to_date try_to_number try_to_timestamp typeof ucase unbase64 unhex unix_date unix_micros unix_millis
    unix_seconds unix_timestamp upper url_decode url_encode var_pop var_samp variance weekday weekofyear when
    width_bucket xxhash64 year zeroifnull zip_with
    """
)

# Words that may stand before a parenthesis without being a call.
WORDS = _names_allowed(
    """
    all and anti as between by case cross cube distinct else end except exists filter from full group grouping having
    if in inner intersect interval is join lateral left like limit minus natural not offset on or order outer over
    partition qualify right rlike rollup rows select semi sets some then union using values when where window with
    within ilike any ordinality varchar char decimal dec numeric array map struct pivot unpivot for
    tablesample
    """
)
