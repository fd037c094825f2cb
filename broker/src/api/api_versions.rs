//! ApiVersions, versions 0 to 4: the APIs that are served. Asked in a version that is not known it
//! answers in version 0 with UNSUPPORTED_VERSION and the whole list; client software with an odd
//! name is INVALID_REQUEST. It needs no login.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::SERVED;

pub(super) const VERSIONS: (i16, i16) = (0, 4);

pub(super) fn answer(version: i16, request: &ApiVersionsRequest) -> ApiVersionsResponse {
    let software = [&request.client_software_name, &request.client_software_version];
    if version >= 3 && !software.iter().all(|name| is_name(name)) {
        return ApiVersionsResponse::default()
            .with_error_code(ResponseError::InvalidRequest.code());
    }
    list()
}

pub(super) fn unknown_version() -> ApiVersionsResponse {
    list().with_error_code(ResponseError::UnsupportedVersion.code())
}

fn list() -> ApiVersionsResponse {
    let keys = SERVED.iter().map(|served| {
        ApiVersion::default()
            .with_api_key(served.key as i16)
            .with_min_version(served.advertised)
            .with_max_version(served.max)
    });
    ApiVersionsResponse::default().with_api_keys(keys.collect())
}

/// Letters and digits, with dots and dashes inside.
fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.chars().all(inner) && outer(name.chars().next()) && outer(name.chars().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_client_software_have_letters_digits_and_inner_dots_and_dashes() {
        for name in ["a", "7", "apache-kafka.java2", "3.7.0-rc1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", ".", "a b", "1/0", "caf\u{e9}"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn apis_are_listed_by_key_and_produce_from_version_0() {
        let keys: Vec<i16> = SERVED.iter().map(|served| served.key as i16).collect();
        assert!(keys.is_sorted());
        let listed = unknown_version();
        assert_eq!(listed.error_code, 35);
        assert_eq!((listed.api_keys[0].api_key, listed.api_keys[0].min_version), (0, 0));
        assert!(SERVED.iter().all(|served| served.advertised <= served.min));
    }
}
