//! The variables that rules look at.

/// Declares [`Variable`] with the name of each, and which are collections with named members.
macro_rules! variables {
    ($($name:ident = $text:literal $(, $members:ident)?;)+) => {
        /// A variable or collection of the rule language.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Variable {
            $(#[doc = $text] $name,)+
        }

        impl Variable {
            /// Every variable.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name in rules and reports.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Whether it has named members.
            pub(crate) fn has_members(self) -> bool {
                match self { $(Self::$name => false $(|| stringify!($members) == "members")?,)+ }
            }
        }
    };
}

variables! {
    Args = "ARGS", members;
    ArgsNames = "ARGS_NAMES", members;
    ArgsGet = "ARGS_GET", members;
    ArgsGetNames = "ARGS_GET_NAMES", members;
    ArgsPost = "ARGS_POST", members;
    ArgsPostNames = "ARGS_POST_NAMES", members;
    ArgsJoined = "ARGS_JOINED", members;
    Cookies = "REQUEST_COOKIES", members;
    CookiesNames = "REQUEST_COOKIES_NAMES", members;
    Headers = "REQUEST_HEADERS", members;
    HeadersNames = "REQUEST_HEADERS_NAMES", members;
    Files = "FILES", members;
    FilesNames = "FILES_NAMES", members;
    FilesSizes = "FILES_SIZES", members;
    PartHeaders = "MULTIPART_PART_HEADERS", members;
    Xml = "XML";
    XmlAttributes = "XML_ATTRIBUTES";
    Method = "REQUEST_METHOD";
    Uri = "REQUEST_URI";
    UriRaw = "REQUEST_URI_RAW";
    Filename = "REQUEST_FILENAME";
    Basename = "REQUEST_BASENAME";
    Line = "REQUEST_LINE";
    Protocol = "REQUEST_PROTOCOL";
    QueryString = "QUERY_STRING";
    Body = "REQUEST_BODY";
    BodyLength = "REQUEST_BODY_LENGTH";
    BodyProcessor = "REQBODY_PROCESSOR";
    BodyError = "REQBODY_ERROR";
    BodyErrorMsg = "REQBODY_ERROR_MSG";
    MultipartStrictError = "MULTIPART_STRICT_ERROR";
    ArgsCombinedSize = "ARGS_COMBINED_SIZE";
    FilesCombinedSize = "FILES_COMBINED_SIZE";
    RemoteAddr = "REMOTE_ADDR";
    ServerName = "SERVER_NAME";
    UniqueId = "UNIQUE_ID";
    ResponseStatus = "RESPONSE_STATUS";
    ResponseProtocol = "RESPONSE_PROTOCOL";
    ResponseHeaders = "RESPONSE_HEADERS", members;
    ResponseHeadersNames = "RESPONSE_HEADERS_NAMES", members;
    ResponseContentType = "RESPONSE_CONTENT_TYPE";
    ResponseContentLength = "RESPONSE_CONTENT_LENGTH";
    ResponseBody = "RESPONSE_BODY";
    Tx = "TX", members;
    MatchedVar = "MATCHED_VAR";
    MatchedVarName = "MATCHED_VAR_NAME";
    MatchedVars = "MATCHED_VARS", members;
    MatchedVarsNames = "MATCHED_VARS_NAMES", members;
}

/// Other names of the same.
const ALIASES: &[(&str, Variable)] = &[
    ("REQUEST_BODY_PROCESSOR", Variable::BodyProcessor),
    ("MULTIPART_FILENAME", Variable::Files),
    ("MULTIPART_NAME", Variable::FilesNames),
];

impl Variable {
    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// The variable of this name, in whatever case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|it| it.name().eq_ignore_ascii_case(name)).copied();
        // Its own name only exists here.
        let known = known.filter(|it| *it != Self::XmlAttributes);
        known.or_else(|| ALIASES.iter().find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1))
    }

    /// Whether what it holds depends on the rules that ran before, rather than on the request alone.
    pub(crate) fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::Tx | Self::MatchedVar | Self::MatchedVarName | Self::MatchedVars | Self::MatchedVarsNames
        )
    }

    /// Whether it is known only once the response is.
    pub(crate) fn is_response(self) -> bool {
        matches!(
            self,
            Self::ResponseStatus
                | Self::ResponseProtocol
                | Self::ResponseHeaders
                | Self::ResponseHeadersNames
                | Self::ResponseContentType
                | Self::ResponseContentLength
                | Self::ResponseBody
        )
    }
}
