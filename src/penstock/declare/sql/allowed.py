"""The functions that a query from outside may call. Whatever is not named here is refused: a new version of Spark may
bring functions that read files, call other systems or load code, and nobody would notice.

Left out on purpose: reflect, java_method (run code of the JVM); from_protobuf, from_avro, xpath, from_xml (read
descriptors, parse what outsiders wrote); input_file_name, current_user, version and the like (tell of the machine); uuid,
rand (another answer each time); window functions over time that need state. What makes memory from nothing (repeat, space, sequence, array_repeat, lpad,
rpad) is bounded, see `bounds.py`. A project can allow more, and free these of their bounds: `[queries] functions = ["lpad"]`.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED = _names(
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
WORDS = _names(
    """
    all and anti as between by case cross cube distinct else end except exists filter from full group grouping having
    if in inner intersect interval is join lateral left like limit minus natural not offset on or order outer over
    partition qualify right rlike rollup rows select semi sets some then union using values when where window with
    within ilike any ordinality varchar char decimal dec numeric array map struct pivot unpivot for
    tablesample
    """
)
