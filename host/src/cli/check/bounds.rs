//! How long, how many, how large, and of which form: what a schema asks of a value of the right type. Formats and CEL rules
//! are not looked at, nor are patterns that this library reads in another way than the API server's.

use std::cmp::Ordering;

use regex::Regex;
use serde_json::Value;

/// What the schema asks and the value is not: each says what would be right.
pub(super) fn broken(value: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut sized = |size: usize, least: &str, most: &str, unit: &str| {
        if schema[least].as_u64().is_some_and(|least| (size as u64) < least) {
            found.push(format!("{size} {unit}, {} or more would be right", schema[least]));
        }
        if schema[most].as_u64().is_some_and(|most| size as u64 > most) {
            found.push(format!("{size} {unit}, {} or less would be right", schema[most]));
        }
    };
    match value {
        Value::String(text) => {
            sized(text.chars().count(), "minLength", "maxLength", "characters");
            if let Some(pattern) = schema["pattern"].as_str()
                && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
            {
                found.push(format!("{value} does not match {pattern}"));
            }
        }
        Value::Array(items) => sized(items.len(), "minItems", "maxItems", "items"),
        Value::Object(fields) => sized(fields.len(), "minProperties", "maxProperties", "fields"),
        Value::Number(_) => {
            for (bound, excluded, wrong, word) in [
                ("minimum", "exclusiveMinimum", Ordering::Less, "more"),
                ("maximum", "exclusiveMaximum", Ordering::Greater, "less"),
            ] {
                let order = value.as_f64().zip(schema[bound].as_f64());
                let order = order.and_then(|(value, bound)| value.partial_cmp(&bound));
                let is_excluded = schema[excluded] == Value::Bool(true);
                if order == Some(wrong) || is_excluded && order == Some(Ordering::Equal) {
                    let right = if is_excluded {
                        format!("{word} than {}", schema[bound])
                    } else {
                        format!("{} or {word}", schema[bound])
                    };
                    found.push(format!("{value}: {right} would be right"));
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_bound_is_told() {
        for (value, schema, problem) in [
            (json!("äö"), json!({"maxLength": 1}), "2 characters, 1 or less would be right"),
            (json!(""), json!({"minLength": 1}), "0 characters, 1 or more would be right"),
            (json!("a b"), json!({"pattern": "^[a-z]+$"}), "\"a b\" does not match ^[a-z]+$"),
            (json!([1]), json!({"minItems": 2}), "1 items, 2 or more would be right"),
            (json!({"a": 1}), json!({"maxProperties": 0}), "1 fields, 0 or less would be right"),
            (json!(0), json!({"minimum": 1}), "0: 1 or more would be right"),
            (json!(1.5), json!({"maximum": 1}), "1.5: 1 or less would be right"),
            (json!(1), json!({"minimum": 1, "exclusiveMinimum": true}), "1: more than 1 would be right"),
        ] {
            assert_eq!(broken(&value, &schema), [problem], "{value} {schema}");
        }
        let within = json!({"minLength": 2, "maxLength": 2, "pattern": "^[^/]+$", "minimum": 1});
        assert!(broken(&json!("äö"), &within).is_empty());
        assert!(broken(&json!(1), &json!({"minimum": 1, "maximum": 1})).is_empty());
        assert!(broken(&json!("a"), &json!({"pattern": "(?=a)"})).is_empty(), "not a pattern for us");
    }
}
