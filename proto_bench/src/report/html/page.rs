//! The page around the charts: style, circumstances, tables, configurations.

use std::fmt::Write;

use super::escape;
use crate::report::model::Document;
use crate::report::numbers::mebibytes;

const STYLE: &str = "
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee6;--paper:#fbfcfd;--card:#fff;--void:#b3261e;
--s0:#2f6fde;--s1:#e0752d;--s2:#2a9d6f;--s3:#8a5cd6;--s4:#c2417c;--s5:#6b7785;--s6:#b58a00;--s7:#0f8b9d}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b6;--line:#323b48;--paper:#12161c;--card:#1a2028;
--void:#ff8a80;--s0:#6ea0ff;--s1:#ffa566;--s2:#5fd3a5;--s3:#b99aff;--s4:#ff86b8;--s5:#9aa6b6;--s6:#e3c04b;--s7:#5cc6d6}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
main{max-width:1200px;margin:0 auto;padding:2rem 1.25rem 4rem}h1{font-size:1.6rem;margin:0 0 .25rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem}h3{font-size:1rem;margin:1.75rem 0 .5rem}
p,ul{max-width:75ch}.soft,figcaption span{color:var(--soft)}.figure strong{font-size:2rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:1rem;margin:1rem 0}
.charts.small{grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr))}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.9rem 1rem}
figcaption{font-weight:600;margin-bottom:.4rem}figcaption span{font-weight:400;font-size:.85rem}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font:11px system-ui,sans-serif}
svg text.v{fill:var(--ink)}svg .g{stroke:var(--line);stroke-width:1}svg .l{fill:none;stroke-width:2}
.key{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.85rem;margin-top:.4rem}
.key i{display:inline-block;width:.75rem;height:.75rem;border-radius:3px;margin-right:.35rem;vertical-align:-1px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem;margin:.75rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .7rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{font-weight:600}td.void{color:var(--void);font-weight:600}
td.marks{white-space:normal;min-width:14rem;color:var(--soft);font-size:.8rem}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.8rem;overflow:auto;font-size:.8rem;max-height:24rem}
details{margin:.4rem 0}summary{cursor:pointer}code{font-size:.9em}.reason{color:var(--void)}
";

pub(super) fn wrap(body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><title>proto_bench</title><style>{STYLE}</style></head>\
         <body><main><h1>proto_bench</h1><p class=soft>Every answer verified; a row with a wrong one is void and has \
         no figures.</p>{body}</main></body></html>\n"
    )
}

pub(super) fn circumstances(out: &mut String, document: &Document) {
    let machine = &document.machine;
    let revision = document.revision.as_ref().map_or_else(String::new, |revision| {
        format!(", source {}{}", revision.commit, if revision.modified { " with local changes" } else { "" })
    });
    write!(
        out,
        "<p class=soft>{}, {} cores, {:.0} GiB{}, {} · {}{}</p><p class=soft><code>{}</code></p>",
        escape(&machine.cpu),
        machine.cores,
        mebibytes(machine.memory_bytes) / 1024.0,
        if machine.virtualised { ", virtual machine" } else { "" },
        escape(&machine.kernel),
        escape(&document.started),
        escape(&revision),
        escape(&document.command)
    )
    .ok();
    let pairs = document.settings.iter().chain(&document.versions);
    let listed: Vec<String> =
        pairs.map(|(name, value)| format!("{}: {}", escape(name), escape(value))).collect();
    write!(out, "<p class=soft>{}</p>", listed.join(" · ")).ok();
}

/// Our own Markdown as HTML: lines of cells, bold and slanted words, lists, and paragraphs between them.
pub(super) fn table(out: &mut String, markdown: &str) {
    let (mut open, mut listed) = (false, false);
    for line in markdown.lines() {
        let is_row = line.starts_with('|');
        if open && !is_row {
            out.push_str("</table></div>");
            open = false;
        }
        let item = line.strip_prefix("- ");
        if listed != item.is_some() {
            out.push_str(if listed { "</ul>" } else { "<ul>" });
            listed = !listed;
        }
        if let Some(item) = item {
            write!(out, "<li>{}</li>", emphasis(item)).ok();
            continue;
        }
        if is_row {
            if line.starts_with("|--") {
                continue;
            }
            let tag = if open { "td" } else { "th" };
            if !open {
                out.push_str("<div class=scroll><table>");
                open = true;
            }
            row(out, line, tag);
        } else if let Some(title) = line.strip_prefix("## ") {
            write!(out, "<h3>{}</h3>", escape(title)).ok();
        } else if let Some(rest) = line.strip_prefix("**void**: ") {
            write!(out, "<p class=reason>void: {}</p>", escape(rest)).ok();
        } else if !line.trim().is_empty() {
            write!(out, "<p>{}</p>", emphasis(line)).ok();
        }
    }
    if open {
        out.push_str("</table></div>");
    }
    if listed {
        out.push_str("</ul>");
    }
}

fn row(out: &mut String, line: &str, tag: &str) {
    out.push_str("<tr>");
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    for (column, cell) in cells.iter().enumerate() {
        let is_text =
            column + 1 == cells.len() && column > 3 && cell.contains(|c: char| c.is_ascii_lowercase());
        let class = match *cell {
            "**void**" => " class=void",
            _ if tag == "td" && is_text => " class=marks",
            _ => "",
        };
        write!(out, "<{tag}{class}>{}</{tag}>", emphasis(cell)).ok();
    }
    out.push_str("</tr>");
}

fn emphasis(text: &str) -> String {
    alternate(text, "**", "strong", &|text| alternate(text, "*", "em", &escape))
}

/// Every other part between marks in a tag, where marks come in pairs.
fn alternate(text: &str, mark: &str, tag: &str, inner: &dyn Fn(&str) -> String) -> String {
    let parts: Vec<&str> = text.split(mark).collect();
    if parts.len().is_multiple_of(2) {
        return inner(text);
    }
    parts
        .iter()
        .enumerate()
        .map(|(at, part)| if at % 2 == 1 { format!("<{tag}>{}</{tag}>", inner(part)) } else { inner(part) })
        .collect()
}

pub(super) fn configurations(out: &mut String, document: &Document) {
    if document.configurations.is_empty() {
        return;
    }
    out.push_str("<h3>Configurations</h3>");
    for (name, text) in &document.configurations {
        write!(out, "<details><summary>{}</summary><pre>{}</pre></details>", escape(name), escape(text)).ok();
    }
}
