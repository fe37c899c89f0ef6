//! What automated clients call themselves. Parts of the header, compared without regard to case.
//!
//! An entry belongs here when its program sends it by default and no browser does. Keep the lists sorted.

use schemars::JsonSchema;
use serde::Deserialize;

/// A list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum List {
    /// Vulnerability scanners.
    Scanners,
    /// Command-line clients and HTTP libraries.
    Tools,
    /// Automated browsers.
    Headless,
    /// Crawlers of SEO and data services.
    Scrapers,
    /// Crawlers for language models.
    Ai,
    /// Search engines.
    Search,
}

impl List {
    /// The name users write.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scanners => "scanners",
            Self::Tools => "tools",
            Self::Headless => "headless",
            Self::Scrapers => "scrapers",
            Self::Ai => "ai",
            Self::Search => "search",
        }
    }

    pub(super) fn patterns(self) -> &'static [&'static str] {
        match self {
            Self::Scanners => SCANNERS,
            Self::Tools => TOOLS,
            Self::Headless => HEADLESS,
            Self::Scrapers => SCRAPERS,
            Self::Ai => AI,
            Self::Search => SEARCH,
        }
    }
}

const SCANNERS: &[&str] = &[
    "absinthe",
    "acunetix",
    "arachni",
    "burpcollaborator",
    "censysinspect",
    "commix",
    "dirbuster",
    "dirsearch",
    "expanse, a palo alto",
    "feroxbuster",
    "ffuf/",
    "fuzz faster u fool",
    "gobuster",
    "hydra",
    "internetmeasurement",
    "joomscan",
    "jorgee",
    "l9explore",
    "l9tcpid",
    "leakix",
    "masscan",
    "morfeus",
    "muieblackcat",
    "nessus",
    "netsparker",
    "netsystemsresearch",
    "nikto",
    "nmap scripting engine",
    "nuclei",
    "openvas",
    "owasp zap",
    "paros",
    "qualys",
    "shodan",
    "skipfish",
    "sqlmap",
    "sqlninja",
    "w3af",
    "wfuzz",
    "whatweb",
    "whitehat",
    "wpscan",
    "xsser",
    "zgrab",
    "zmeu",
];

const TOOLS: &[&str] = &[
    "aiohttp/",
    "apache-httpclient",
    "axios/",
    "curl/",
    "go-http-client",
    "got (",
    "guzzlehttp",
    "http_request2",
    "httpclient",
    "httpie/",
    "httpunit",
    "java/",
    "jakarta commons",
    "libcurl",
    "libwww-perl",
    "lwp::simple",
    "lwp-trivial",
    "mechanize",
    "node-fetch",
    "okhttp",
    "pear http",
    "php/",
    "postmanruntime",
    "powershell",
    "python-httpx",
    "python-requests",
    "python-urllib",
    "python/",
    "reqwest/",
    "rest-client",
    "restsharp",
    "ruby",
    "scrapy",
    "undici",
    "urlgrabber",
    "wget",
    "winhttp",
    "xh/",
];

const HEADLESS: &[&str] = &[
    "cypress",
    "electron/",
    "headlesschrome",
    "headless chrome",
    "htmlunit",
    "nightmare",
    "phantomjs",
    "playwright",
    "puppeteer",
    "selenium",
    "slimerjs",
    "splash",
];

const SCRAPERS: &[&str] = &[
    "ahrefsbot",
    "barkrowler",
    "blexbot",
    "brandverity",
    "cliqzbot",
    "copyscape",
    "dataforseobot",
    "domaincrawler",
    "dotbot",
    "exabot",
    "grapeshot",
    "httrack",
    "linkdex",
    "linkpad",
    "magpie-crawler",
    "megaindex",
    "mj12bot",
    "netestate",
    "offline explorer",
    "rogerbot",
    "scoutjet",
    "semrushbot",
    "seokicks",
    "seznambot",
    "siteauditbot",
    "sitesucker",
    "teleport",
    "webcopier",
    "webripper",
    "webzip",
    "zoominfobot",
];

const AI: &[&str] = &[
    "ai2bot",
    "amazonbot",
    "anthropic-ai",
    "applebot-extended",
    "bytespider",
    "ccbot",
    "chatgpt-user",
    "claude-searchbot",
    "claude-user",
    "claude-web",
    "claudebot",
    "cohere-ai",
    "cohere-training-data-crawler",
    "deepseekbot",
    "diffbot",
    "facebookbot",
    "google-extended",
    "gptbot",
    "icc-crawler",
    "imagesiftbot",
    "kangaroo bot",
    "meta-externalagent",
    "meta-externalfetcher",
    "mistralai-user",
    "oai-searchbot",
    "omgili",
    "pangubot",
    "perplexity-user",
    "perplexitybot",
    "petalbot",
    "timpibot",
    "webzio-extended",
    "youbot",
];

const SEARCH: &[&str] = &[
    "adsbot-google",
    "applebot",
    "baiduspider",
    "bingbot",
    "bingpreview",
    "duckduckbot",
    "googlebot",
    "mojeekbot",
    "msnbot",
    "naverbot",
    "qwantbot",
    "qwantify",
    "sogou",
    "slurp",
    "yacybot",
    "yandexbot",
    "yeti/",
];
