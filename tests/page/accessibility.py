"""Checks of a page in a browser, as the tools for accessibility make them: each function returns what it found wrong.

Source: WCAG 2.2, level AA: 1.1.1 text alternatives, 1.3.1 relationships, 1.4.3 and 1.4.11 contrast, 2.4.1 to 2.4.6
skip link, title, headings, 3.1.1 language, 3.3.2 labels, 4.1.2 names.
"""

from __future__ import annotations

from playwright.async_api import Page

__all__ = ["contrast_faults", "structure_faults"]

_STRUCTURE = """() => {
  const faults = [];
  const all = selector => [...document.querySelectorAll(selector)];
  const named = (element) => (element.getAttribute('aria-label') || '').trim()
    || (element.labels && [...element.labels].map(label => label.textContent).join(' ').trim())
    || element.textContent.trim();
  const check = (good, fault) => { if (!good) faults.push(fault); };
  check(document.documentElement.lang === 'en', 'the language is not given');
  check(document.title.trim(), 'there is no title');
  check(all('h1').length === 1, `there are ${all('h1').length} h1`);
  check(all('main').length === 1 && all('header').length === 1, 'main or header is missing');
  let level = 0;
  for (const heading of all('h1, h2, h3, h4')) {
    const next = Number(heading.tagName[1]);
    check(next <= level + 1, `${heading.tagName} follows h${level}`);
    check(named(heading), 'a heading is empty');
    level = next;
  }
  for (const field of all('input:not([type=hidden]):not([hidden]), select, button'))
    check(named(field), `${field.outerHTML} has no label`);
  for (const link of all('a')) check(named(link), `${link.outerHTML} has no text`);
  for (const table of all('table')) {
    check(table.caption && table.caption.textContent.trim(), 'a table has no caption');
    check(table.querySelectorAll('thead th[scope=col]').length, 'a table has no headings of columns');
    check(![...table.querySelectorAll('th')].some(cell => !cell.scope), 'a th has no scope');
  }
  for (const picture of all('svg, img')) {
    const said = picture.getAttribute('aria-label') || picture.getAttribute('alt');
    check(picture.getAttribute('role') === 'img' && said, 'a picture has no text');
  }
  for (const part of all('.scroll')) {
    const said = part.getAttribute('aria-label') || part.getAttribute('aria-labelledby');
    check(part.tabIndex === 0 && said, 'what scrolls is out of reach of the keyboard, or has no name');
  }
  const ids = all('[id]').map(element => element.id);
  check(new Set(ids).size === ids.length, 'an id is used twice');
  for (const state of all('.state')) check(/\\w{2,}/.test(state.textContent), 'a state is shown by colour alone');
  return faults;
}"""

_CONTRAST = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => [red, green, blue].map(part => {
    part /= 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const ratio = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const faults = [];
  let seen = 0;
  const judge = (element, colour, least) => {
    const found = ratio(numbers(colour), ground(element));
    seen += 1;
    const name = `${element.tagName}.${element.getAttribute('class')}`;
    if (found < least) faults.push(`${name}: ${found.toFixed(2)} < ${least}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    judge(element, element.closest('svg') ? style.fill : style.color, 4.5);
  }
  for (const line of document.querySelectorAll('svg path')) judge(line, getComputedStyle(line).stroke, 3);
  for (const field of document.querySelectorAll('input:not([type=hidden]):not([hidden]), select, button'))
    judge(field.parentElement, getComputedStyle(field).borderTopColor, 3);
  if (seen < 5) faults.push(`only ${seen} colours were looked at`);
  return faults;
}"""


async def structure_faults(tab: Page) -> list[str]:
    """What a reader who does not see the page, or uses a keyboard, would miss."""
    found: list[str] = await tab.evaluate(_STRUCTURE)
    return found


async def contrast_faults(tab: Page) -> list[str]:
    """Texts with less than 4.5 to 1 against their ground, lines and borders of fields with less than 3 to 1."""
    found: list[str] = await tab.evaluate(_CONTRAST)
    return found
