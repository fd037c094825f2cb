//! ApiVersions, versions 0 to 4: the APIs that are served. Asked in a version that is not known it
//! answers in version 0 with UNSUPPORTED_VERSION and the whole list; client software with an odd
//! name is INVALID_REQUEST. It needs no login. `transaction.version` 2 tells clients that they may
//! use the second protocol of transactions (KIP-890).

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use super::request::{Api, Asked, Closing, Reply, Served, reply, text};
use crate::profile::Profile;
use crate::wire::fields::{TEXT, plain, since};
use crate::wire::shape::Body;

pub(super) struct ApiVersions;

impl Api for ApiVersions {
    type Request = ApiVersionsRequest;
    const KEY: ApiKey = ApiKey::ApiVersions;
    const VERSIONS: (i16, i16) = (0, 4);
    const SHAPE: &'static Body = &BODY;
    const BEFORE_LOGIN: bool = true;

    async fn reply(asked: Asked<'_>, request: ApiVersionsRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.apis, asked.context.rules.profile, asked.start.version, &request),
        ))
    }
}

const BODY: Body = Body { flexible_since: 3, body: plain(&[since(3, TEXT), since(3, TEXT)]) };

/// The first version that tells of features.
const WITH_FEATURES: i16 = 3;
/// The first version in which a supported feature may begin with level 0.
const WITH_LEVEL_0: i16 = 4;
const TRANSACTION_VERSION: &str = "transaction.version";
const TRANSACTION_LEVEL: i16 = 2;
/// A feature of this broker alone: with it the list is there in every version that has it.
const OWN_FEATURE: &str = "tidelog.version";

fn answer(
    apis: &[Served],
    profile: Profile,
    version: i16,
    request: &ApiVersionsRequest,
) -> ApiVersionsResponse {
    let software = [&request.client_software_name, &request.client_software_version];
    if version >= 3 && !software.iter().all(|name| is_name(name)) {
        return ApiVersionsResponse::default()
            .with_error_code(ResponseError::InvalidRequest.code());
    }
    let response = list(apis, profile);
    if version < WITH_FEATURES || profile != Profile::Kafka {
        return response;
    }
    let finalized = FinalizedFeatureKey::default()
        .with_name(text(TRANSACTION_VERSION))
        .with_min_version_level(TRANSACTION_LEVEL)
        .with_max_version_level(TRANSACTION_LEVEL);
    let supported = |name, levels: (i16, i16)| {
        SupportedFeatureKey::default()
            .with_name(text(name))
            .with_min_version(levels.0)
            .with_max_version(levels.1)
    };
    let mut features = vec![supported(OWN_FEATURE, (1, 1))];
    if version >= WITH_LEVEL_0 {
        features.push(supported(TRANSACTION_VERSION, (0, TRANSACTION_LEVEL)));
    }
    response
        .with_supported_features(features)
        .with_finalized_features_epoch(0)
        .with_finalized_features(vec![finalized])
}

pub(super) fn unknown_version(apis: &[Served], profile: Profile) -> ApiVersionsResponse {
    list(apis, profile).with_error_code(ResponseError::UnsupportedVersion.code())
}

fn list(apis: &[Served], profile: Profile) -> ApiVersionsResponse {
    let keys = apis.iter().filter(|served| served.is_in(profile)).map(|served| {
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
    use crate::api::SERVED;

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
        let listed = unknown_version(&SERVED, Profile::Kafka);
        assert_eq!(listed.error_code, 35);
        assert_eq!((listed.api_keys[0].api_key, listed.api_keys[0].min_version), (0, 0));
        assert!(SERVED.iter().all(|served| served.advertised <= served.min));
    }

    #[test]
    fn producer_ids_and_transactions_are_the_profile_kafkas_alone() {
        let lists = |profile, key| {
            list(&SERVED, profile).api_keys.iter().any(|listed| listed.api_key == key as i16)
        };
        for key in [ApiKey::InitProducerId, ApiKey::EndTxn, ApiKey::ListTransactions] {
            assert!(lists(Profile::Kafka, key) && !lists(Profile::EventBroker, key), "{key:?}");
        }
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text("a"))
            .with_client_software_version(text("1"));
        let finalized = |profile, version| {
            let answered = answer(&SERVED, profile, version, &request);
            (answered.finalized_features.len(), answered.supported_features.len())
        };
        assert_eq!(finalized(Profile::Kafka, 2), (0, 0));
        assert_eq!(finalized(Profile::Kafka, 3), (1, 1));
        assert_eq!(finalized(Profile::Kafka, 4), (1, 2));
        assert_eq!(finalized(Profile::EventBroker, 4), (0, 0));
    }
}
